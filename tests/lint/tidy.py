"""Runs clang-tidy with the checks of .clang-tidy over the sources of server/ and client/: by hand, for it takes minutes.

    tidy.py CLANG_TIDY BUILD_DIR        BUILD_DIR has compile_commands.json and the generated headers; it was configured
                                        with SVDSERVE_UNITY=OFF
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sources(build):
    files = {pathlib.Path(entry["file"]) for entry in json.loads((build / "compile_commands.json").read_text())}
    mine = (f for f in files if f.is_relative_to(ROOT) and f.relative_to(ROOT).parts[0] in ("server", "client"))
    return sorted(f for f in mine if f.suffix == ".cc")


def check(clang_tidy, build, source):
    # Warnings are the compiler's business, and GCC's flags not all clang's.
    done = subprocess.run([clang_tidy, "-p", build, "--quiet", "--extra-arg=-Wno-everything", source], cwd=ROOT,
                          capture_output=True, text=True)
    return done.stdout if done.returncode else ""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    clang_tidy, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    todo = sources(build)
    if len(todo) < 50:
        sys.exit(f"tidy: {build}/compile_commands.json has only {len(todo)} sources of server and client; "
                 "configure it with SVDSERVE_UNITY=OFF")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [text for text in pool.map(lambda one: check(clang_tidy, build, one), todo) if text]
    print(f"{len(todo)} sources")
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
