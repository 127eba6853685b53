"""The sentences of documents, comments, docstrings and texts that users see: how long they are, and which words they use."""
import ast
import re

MOST_WORDS = 25  # of a sentence

COMMENT = {".h": "//", ".cc": "//", ".cu": "//", ".proto": "//", ".py": "#", ".sh": "#", ".cmake": "#"}

# Words that GLOSSARY.md has another word for, where users read.
PRIVATE = {
    r"factors?": "large matrix",
    r"answer(?:s|ed|ing)?": "reply, result or MIMO number",
    r"refus(?:e|es|ed|ing|als?)": "reject",
    r"so (?:many|much)": "the number",
    r"who(?:m?ever|so)": "the noun",
    r"nobody": "the noun",
    r"in line": "in the queue",
    r"is no (?:number|method|strategy|message|one)": "is not a ...",
}
# Their other meanings: a part of a result on the wire, a part of a product, a label of a metric.
ALLOWED = re.compile(r"(?:QR|Q|Cholesky|triangular|result) factors?\b|factor G\b|[Ff]actor chunks?\b|each factor's\b|of this factor\b"
                     r"|\bvalues vectors answers\b|\.\., factor,|^factor$|Connection refused", re.IGNORECASE)

STRING = r'"(?:[^"\\\n]|\\.)*"'
STRINGS = re.compile(rf"(?<!R){STRING}(?:\s*{STRING})*")


def sentences(text):
    """The sentences of a paragraph. A colon or a semicolon ends none, nor do the two points of a range."""
    return [s for s in re.split(r"(?<=[^.\s][.!?])(?<! al\.)[\"')*]*\s+", text) if s]


def words(sentence):
    """The number of words: a piece of code counts as one, a formula and a name of one letter as none."""
    plain = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|https?://\S+", " code ", sentence)
    stripped = (w.strip("()[]{}<>,.;:!?\"'*+-=|/") for w in plain.split())
    return sum(1 for w in stripped if w == "a" or len(w) > 1 and re.fullmatch(r"[\w'’./:-]+", w))


def long_sentences(text):
    return [s for s in sentences(text) if words(s) > MOST_WORDS]


def private_words(text):
    """Each word of the text that GLOSSARY.md has another one for, with that one. Code and names do not count."""
    plain = ALLOWED.sub(" ", re.sub(r"`[^`]*`|\]\([^)]*\)|\S*[_/]\S*", " ", text))
    return [f"{found.group()} (say: {better})" for word, better in PRIVATE.items()
            for found in re.finditer(rf"(?<![-\w]){word}(?![-\w])", plain, re.IGNORECASE)]


def paragraphs(text):
    """Paragraphs, items of lists, headings and cells of tables of a document, each with its line; no blocks of code."""
    fenced, code_may_begin, first, run = False, True, 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        fence = stripped.startswith("```")
        fenced ^= fence
        code = fenced or fence or line.startswith("    ") and code_may_begin
        code_may_begin = not stripped or code
        begins = re.match(r"(?:[-*]|\d+\.)\s+", stripped)
        if run and (code or not stripped or begins or stripped.startswith(("|", "#"))):
            yield first, " ".join(run)
            run = []
        if code or not stripped:
            continue
        if stripped.startswith("|"):
            yield from ((number, cell.strip()) for cell in stripped.strip("|").split("|") if re.search("[a-z]", cell))
            continue
        first = first if run else number
        run.append(stripped[begins.end():] if begins else stripped)


def comments(suffix, text):
    """The comments of a source with the numbers of their first lines.

    Lines of one comment are joined, but items of lists. Lines that are indented within a comment, as tables and formulas
    are, stand for themselves.
    """
    mark = COMMENT[suffix]
    run, first = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        body = stripped[len(mark):] if stripped.startswith(mark) and not stripped.startswith("#!") else None
        if body is None or not body.strip() or body.startswith(("   ", " - ")):
            if run:
                yield first, " ".join(run)
            run = []
        if body is not None and body.strip():
            if body.startswith("   "):
                yield number, body.strip()
                continue
            first = first if run else number
            run.append(body.strip())


def docstrings(text):
    """The paragraphs of the docstrings of a Python file, each on one line, with the docstring's line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            for part in re.split(r"\n\s*\n|\n(?=\s*[\w, ]+: )|\n(?=    )", ast.get_docstring(node)):
                if not part.lstrip().startswith((">>>", "python")):
                    yield node.body[0].lineno, " ".join(part.split())


def python_texts(text):
    """The texts in a Python file that are not docstrings, with their lines; values in them stand as X."""
    tree = ast.parse(text)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def cpp_texts(text):
    """The texts in a C++ file, neighbours joined, with their lines. Each line of a help text stands for itself where the
    next one is indented or empty."""
    code = re.sub(r"(?m)^\s*(?://|#include).*$", "", text)
    for match in STRINGS.finditer(code):
        whole = "".join(s[1:-1] for s in re.findall(STRING, match.group()))
        for part in re.split(r"\\n(?=\s|\\n|$)", whole):
            if " " in part:
                yield code.count("\n", 0, match.start()) + 1, part.replace("\\n", " ").replace('\\"', '"')
