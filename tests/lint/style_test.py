"""The style that a reader meets: the width of documents, how sentences begin, how long functions are and how full folders.

Each limit is what the tree has today. It may fall, and never rise.
"""
import ast
import collections
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 120
# Sentences that begin with one of these words put their subject last.
HEADLESS = re.compile(r"(?:^|(?<=[.:;!?] ))(?:What|Of|Whoever|Who|So many)\b")
MOST_HEADLESS = {"documents": 0, "comments": 0}
# Functions of at least this many lines, outside of tests.
LONG_FUNCTION = 60
MOST_LONG_FUNCTIONS = 10

MOST_FILES = 20  # of a folder of engine, server, client and wire

COMMENT = {".h": "//", ".cc": "//", ".cu": "//", ".proto": "//", ".py": "#", ".sh": "#", ".cmake": "#"}


def tracked(*suffixes):
    """The files of the tree, which may be an export without git."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else [
        str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if "build" not in p.relative_to(ROOT).parts[:1]]
    return [ROOT / n for n in names if n.endswith(suffixes) and (ROOT / n).is_file()]


def prose(text):
    """Lines of a document with their numbers, but for headings, tables and blocks of code."""
    fenced, before = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        is_code = line.startswith("    ") and (not before or before.startswith("    "))  # else it continues a list's item
        before = "" if not line else "    " if is_code else line.lstrip()
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not is_code and not line.lstrip().startswith(("|", "#", "**")):
            yield number, line


def comments(path, text):
    """The comments of a source, each run of comment lines joined, with the number of its first line."""
    mark = COMMENT[path.suffix]
    run, first = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith(mark):
            first = first if run else number
            run.append(stripped[len(mark):].strip())
        elif run:
            yield first, " ".join(run)
            run = []


def docstrings(text):
    """The docstrings of a Python file, each on one line, with the number of its first line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, " ".join(ast.get_docstring(node).split())


def long_functions(text):
    """Names and lengths of long functions in C++ as clang-format lays it out: a closing brace alone on a line in column 0
    or 2 ends what began at the nearest line above in that column.
    """
    lines = text.splitlines()
    for end, line in enumerate(lines):
        if line not in ("}", "  }"):
            continue
        indent = line[:-1]
        begins = (at for at in range(end - 1, -1, -1)
                  if re.match(indent + r"[^\s}#/)]", lines[at]) and not lines[at].rstrip().endswith(":"))
        begin = next(begins, end)
        statement = re.match(r"\s*(?:if|for|while|switch|else|do|namespace|struct|class|enum|union|try|SVD_UNROLL\w*)\b",
                             lines[begin])
        if not statement and "(" in lines[begin] and end - begin + 1 >= LONG_FUNCTION:
            yield lines[begin].strip(), end - begin + 1


class Style(unittest.TestCase):
    def test_documents_are_no_wider_than_a_screen(self):
        wide = []
        for path in tracked(".md"):
            fenced = path.read_text(encoding="utf-8").splitlines()
            wide += [f"{path.relative_to(ROOT)}:{n}: {len(line)} columns" for n, line in enumerate(fenced, 1)
                     if len(line) > WIDTH and not line.lstrip().startswith("|")]
        self.assertEqual(wide, [])

    def test_sentences_begin_with_their_subject(self):
        found = {"documents": [], "comments": []}
        for path in tracked(".md"):
            for number, line in prose(path.read_text(encoding="utf-8")):
                if HEADLESS.search(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", line)):
                    found["documents"].append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:60]}")
        for path in tracked(*COMMENT):
            source = path.read_text(encoding="utf-8")
            for number, text in [*comments(path, source), *(docstrings(source) if path.suffix == ".py" else ())]:
                for match in HEADLESS.finditer(text):
                    found["comments"].append(f"{path.relative_to(ROOT)}:{number}: {text[match.start():match.start() + 60]}")
        for kind, most in MOST_HEADLESS.items():
            with self.subTest(kind=kind):
                self.assertLessEqual(len(found[kind]), most, "\n" + "\n".join(found[kind]))

    def test_functions_fit_a_screen(self):
        found = [f"{path.relative_to(ROOT)}: {length} lines: {name}"
                 for path in tracked(".h", ".cc", ".cu") if path.relative_to(ROOT).parts[0] != "tests"
                 for name, length in long_functions(path.read_text(encoding="utf-8"))]
        self.assertLessEqual(len(found), MOST_LONG_FUNCTIONS, "\n" + "\n".join(found))

    def test_folders_have_few_files(self):
        folders = collections.Counter(path.parent.relative_to(ROOT) for path in tracked("")
                                      if path.relative_to(ROOT).parts[0] in ("engine", "server", "client", "wire"))
        self.assertEqual({str(f): n for f, n in folders.items() if n > MOST_FILES}, {})

    def test_faults_are_found(self):
        self.assertEqual(len(list(HEADLESS.finditer("Of it all. What is it; Who knows: So many. Whatever."))), 4)
        self.assertEqual([n for n, _ in prose("a\n```\nb\n```\n| c |\n\n    d\ne\n1. f\n    g\n")], [1, 6, 8, 9, 10])
        self.assertEqual(list(docstrings('"""A."""\ndef f():\n    """B\n    c."""\n')), [(1, "A."), (3, "B c.")])
        body = "void f() {\n" + "  a();\n" * LONG_FUNCTION + "}\n"
        self.assertEqual(len(list(long_functions(body))), 1)
        self.assertEqual(len(list(long_functions("if (a) {\n" + body[11:]))), 0)


if __name__ == "__main__":
    unittest.main()
