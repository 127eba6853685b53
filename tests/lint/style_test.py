"""The style that a reader meets: the width of documents, sentences and words, how long functions are and how full folders.

Each limit is the number in the tree today. It may fall, and never rise.
"""
import collections
import pathlib
import re
import subprocess
import unittest

from english import COMMENT, comments, cpp_texts, docstrings, long_sentences, paragraphs, private_words, python_texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 120
# Sentences that begin with one of these words put their subject last.
HEADLESS = re.compile(r"(?:^|(?<=[.:;!?] ))(?:What|Of|Whoever|Who|So many)\b")
MOST_HEADLESS = {"documents": 0, "comments": 1}
# Functions of at least this many lines, outside of tests.
LONG_FUNCTION = 60
MOST_LONG_FUNCTIONS = 5

MOST_FILES = 20  # of a folder of engine, server, client and wire

# Sentences of more than english.MOST_WORDS words. "seen": texts that users read, whose words are the glossary's, too.
MOST_LONG_SENTENCES = {"seen": 0, "docstrings": 0, "decisions": 0, "comments": 0}
# Folders whose string literals are help texts, errors and lines of the log.
TEXTS = ("server", "client/cpp", "client/cli", "client/python/src", "engine/planner.cc", "engine/large_engine.cc")
MOST_PRIVATE_WORDS = 0
PUBLIC_HEADERS = re.compile(r"(?:client/cpp|engine)/\w+\.h$")
OTHERS_PROTOS = ("proto/google", "proto/grpc")


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


def texts():
    """Every kind of text with its file, line and words: (kind, path, line, text)."""
    for path in tracked(".md"):
        name = str(path.relative_to(ROOT))
        kind = "decisions" if "/decisions/" in name or name == "BENCHMARKS.md" else "seen"
        yield from ((kind, name, n, t) for n, t in paragraphs(path.read_text(encoding="utf-8")))
    for path in tracked(*COMMENT):
        name, source = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        if not name.startswith(OTHERS_PROTOS):
            kind = "seen" if path.suffix == ".proto" or PUBLIC_HEADERS.match(name) else "comments"
            yield from ((kind, name, n, t) for n, t in comments(path.suffix, source))
        if path.suffix == ".py":
            kind = "seen" if name.startswith("client/python/") else "docstrings"
            yield from ((kind, name, n, t) for n, t in docstrings(source))
        if name.startswith(TEXTS):
            found = python_texts(source) if path.suffix == ".py" else cpp_texts(source)
            yield from (("seen", name, n, t) for n, t in found)


def long_functions(text):
    """Names and lengths of long functions in C++ as clang-format lays it out.

    A closing brace alone on a line in column 0 or 2 ends the function that began at the nearest line above in that column.
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
        for _, name, number, text in texts():
            if not name.endswith(".md"):
                found["comments"] += [f"{name}:{number}: {text[m.start():m.start() + 60]}" for m in HEADLESS.finditer(text)]
        for kind, most in MOST_HEADLESS.items():
            with self.subTest(kind=kind):
                self.assertLessEqual(len(found[kind]), most, "\n" + "\n".join(found[kind]))

    def test_sentences_are_short(self):
        found = collections.defaultdict(list)
        for kind, name, number, text in texts():
            found[kind] += [f"{name}:{number}: {sentence}" for sentence in long_sentences(text)]
        for kind, most in MOST_LONG_SENTENCES.items():
            with self.subTest(kind=kind):
                self.assertLessEqual(len(found[kind]), most, f"{len(found[kind])} of {most}\n" + "\n".join(found[kind]))

    def test_users_read_the_words_of_the_glossary(self):
        found = [f"{name}:{number}: {word}: {text[:80]}" for kind, name, number, text in texts() if kind == "seen"
                 for word in private_words(text)]
        self.assertLessEqual(len(found), MOST_PRIVATE_WORDS, "\n" + "\n".join(found))

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
        self.assertEqual(list(comments(".h", "// A\n// b.\n//\n//     f = m\n// C.\nx\n")),
                         [(1, "A b."), (4, "f = m"), (5, "C.")])
        self.assertEqual(list(paragraphs("a\nb\n- c\n  d\n| e | f |\n\n    g\n")),
                         [(1, "a b"), (3, "c d"), (5, "e"), (5, "f")])
        self.assertEqual(list(python_texts('"""A."""\nf(f"b {c} d", "e")\n')), [(2, "b X d"), (2, "e")])
        self.assertEqual(list(cpp_texts('f("a b"\n  " c\\n  d e");\n')), [(1, "a b c"), (1, "  d e")])
        self.assertEqual(long_sentences("It is. " + "word " * 24 + "word. " + "word " * 26), ["word " * 26])
        private = "A factor, a QR factor, `factor`, large_factor: refused, and answered in line."
        self.assertEqual(len(private_words(private)), 4)
        body = "void f() {\n" + "  a();\n" * LONG_FUNCTION + "}\n"
        self.assertEqual(len(list(long_functions(body))), 1)
        self.assertEqual(len(list(long_functions("if (a) {\n" + body[11:]))), 0)


if __name__ == "__main__":
    unittest.main()
