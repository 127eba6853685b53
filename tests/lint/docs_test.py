"""Documents agree with their sources: links lead somewhere, reasons are the server's, and README stays short."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("client/**/*.md"), *ROOT.glob("deploy/**/*.md"),
             *ROOT.glob("*/decisions/*.md")]
MOST_LINES = {"README.md": 90, "ARCHITECTURE.md": 200}


def dead_links(path, text):
    """Relative links to files that are not there."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)", text)
    return [link for link in links if not (path.parent / link).exists()]


class Docs(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for path in DOCUMENTS:
            with self.subTest(path=str(path.relative_to(ROOT))):
                self.assertEqual(dead_links(path, path.read_text(encoding="utf-8")), [])
        self.assertEqual(dead_links(ROOT / "README.md", "[a](no/such.md) [b](README.md#x) [c](https://example.com)"),
                         ["no/such.md"])

    def test_errors_are_the_servers(self):
        source = (ROOT / "server/error.h").read_text(encoding="utf-8")
        reasons = set(re.findall(r'return "([A-Z_]+)";', source))
        self.assertIn("OVERLOADED_BYTES", reasons)
        rows = [line.split("|")[1] for line in (ROOT / "docs/errors.md").read_text(encoding="utf-8").splitlines()
                if line.startswith("| ") and not line.startswith("| reason")]
        listed = {word.strip() for row in rows for word in row.split(",")}
        self.assertEqual(reasons, listed)

    def test_first_documents_are_short(self):
        for name, most in MOST_LINES.items():
            with self.subTest(document=name):
                self.assertLessEqual(len((ROOT / name).read_text(encoding="utf-8").splitlines()), most)

    def test_every_folder_has_a_purpose(self):
        """ARCHITECTURE.md names each folder of the sources, by its path or by its name in a row of its parent."""
        text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
        named = {n.removesuffix("/*.h").rstrip("/") for n in re.findall(r"`(?:\.\.\./)?([\w./-]+?/(?:\*\.h)?)`", text)}
        last = {path.rsplit("/", 1)[-1] for path in named}
        folders = {p.parent.relative_to(ROOT) for top in ("engine", "server", "client/cpp", "client/cli", "wire")
                   for p in (ROOT / top).rglob("*") if p.is_file() and "__pycache__" not in p.parts}
        self.assertEqual([str(f) for f in sorted(folders) if str(f) not in named and f.name not in last], [])


if __name__ == "__main__":
    unittest.main()
