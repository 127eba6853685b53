"""Writes docs/flags.md, which is `svdserve --help`, and docs/metrics.md, the list in server/metrics/names.h.

    python3 docs/reference.py build/release/bin/svdserve            # writes them
    python3 docs/reference.py build/release/bin/svdserve --check    # exit status 1 where one is not up to date
"""

import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent
NAMES = DOCS.parent / "server" / "metrics" / "names.h"
NOTE = "Written by `docs/reference.py`."


def flags(server):
    listed = subprocess.run([server, "--help"], capture_output=True, text=True, check=True).stdout
    return f"# Flags\n\n{NOTE}\n\n```\n{listed.rstrip()}\n```\n"


def metrics():
    out = f"# Metrics\n\n{NOTE} The last word of a name is its unit; a counter ends in `_total`.\n"
    labels = ""
    text = NAMES.read_text(encoding="utf-8")
    pattern = (r"// --- ([^\n]*?) -{3,}|// Labels: ([^\n]*(?:\n// (?! ---)[^\n]*)*)"
               r"|MetricName \w+\{\s*((?:\"[^\"]*\"[,\s]*)+)\}")
    for match in re.finditer(pattern, text):
        section, found, metric = match.groups()
        if section:
            out += f"\n## {section[0].upper()}{section[1:]}\n\n| series | meaning | labels |\n|---|---|---|\n"
        elif found:
            labels = " ".join(found.replace("//", " ").split()).rstrip(".")
        else:
            name, *words = re.findall(r'"([^"]*)"', metric)
            out += f"| `{name}` | {''.join(words)} | {labels.replace('|', '')} |\n"
            labels = ""
    return out


def main():
    server, *options = sys.argv[1:] or sys.exit(__doc__)
    stale = 0
    for name, wanted in (("flags.md", flags(server)), ("metrics.md", metrics())):
        path = DOCS / name
        if options != ["--check"]:
            path.write_text(wanted, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != wanted:
            print(f"docs/{name} is not up to date: run docs/reference.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
