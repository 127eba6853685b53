"""Checks with clang that everything marked ABSL_GUARDED_BY is used under its mutex: -Wthread-safety, as errors.

    thread_safety.py CLANG BUILD_DIR        BUILD_DIR has compile_commands.json

Only sources of server/ and client/ that have a mutex, or a header of their own folder tree that has one, are looked at.
"""
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTEX = re.compile(r"\b(?:ABSL_GUARDED_BY|ABSL_EXCLUSIVE_LOCKS_REQUIRED|MutexLock)\b")


def has_mutex(path):
    """Whether the source, or the header of its name, uses a mutex."""
    return any(p.exists() and MUTEX.search(p.read_text(encoding="utf-8")) for p in (path, path.with_suffix(".h")))


def sources(entry):
    """The source that an entry compiles, or those that CMake has put together into it."""
    path = pathlib.Path(entry["file"])
    if path.parent.name != "Unity":
        return [path]
    return [pathlib.Path(name) for name in re.findall(r'#include "(.+)"', path.read_text(encoding="utf-8"))]


def commands(build):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        flags = [w for i, w in enumerate(words) if w.startswith(("-I", "-D", "-isystem")) or words[i - 1] == "-isystem"]
        for path in sources(entry):
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ("server", "client") and has_mutex(path):
                yield path, entry["directory"], flags


def check(clang, path, directory, flags):
    done = subprocess.run([clang, "-fsyntax-only", "-std=c++20", "-Wno-everything", "-Wthread-safety", "-Werror", *flags,
                           path], cwd=directory, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    clang, build = sys.argv[1], pathlib.Path(sys.argv[2])
    todo = list({path: (path, directory, flags) for path, directory, flags in commands(build)}.values())
    if len(todo) < 10:
        sys.exit(f"thread_safety: {build}/compile_commands.json has only {len(todo)} sources with a mutex")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [text for text in pool.map(lambda one: check(clang, *one), todo) if text]
    print(f"{len(todo)} sources")
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
