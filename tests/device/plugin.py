"""Compiles the CUDA plugin on a machine that has nvcc and many cores, but no CMake.

    python3 tests/device/plugin.py pack BUILD FOLDER     here: BUILD was configured with SVDSERVE_CUDA=ON, and not compiled
    python3 tests/device/plugin.py make FOLDER           there, with the same sources: FOLDER/libsvdserve_cuda.so

FOLDER has the units that CMake has generated, and the commands of the build with paths of its own. `make` tells the time
of each unit. `make --only members` compiles again what has that in its name.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "svdserve_cuda"


def without_launchers(words: list[str]) -> list[str]:
    """The compiler and what follows it."""
    first = next(i for i, word in enumerate(words) if Path(word).name in ("nvcc", "c++", "g++", "clang++"))
    return words[first:]


def pack(build: Path, folder: Path) -> int:
    """The commands of the plugin, with $ROOT and $FOLDER in place of the paths here, and its generated units."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", TARGET], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "units").mkdir(parents=True)
    commands, objects = [], []
    for line in lines:
        words = shlex.split(line)
        if "-c" not in words or f"{TARGET}.dir" not in line:
            continue
        words = without_launchers(words)
        source, output = Path(words[words.index("-c") + 1]), words[words.index("-o") + 1]
        name = output.partition(f"{TARGET}.dir/")[2].replace("/", "_")
        if source.is_relative_to(build):
            shutil.copy(source, folder / "units" / source.name)
            place = f"$FOLDER/units/{source.name}"
        else:
            place = f"$ROOT/{source.relative_to(ROOT)}"
        # Another compiler has other warnings.
        words = [word.replace(str(ROOT), "$ROOT") for word in words if not word.startswith("-Werror")]
        words[words.index("-c") + 1], words[words.index("-o") + 1] = place, f"$FOLDER/objects/{name}"
        if "-MF" in words:
            at = words.index("-MD")
            del words[at:words.index("-MF") + 2]
        commands.append({"name": name, "words": words})
        objects.append(f"$FOLDER/objects/{name}")
    link = ["c++", "-shared", "-Wl,--exclude-libs,ALL", "-Wl,--no-undefined", "-Wl,--build-id", "-o",
            f"$FOLDER/lib{TARGET}.so", *objects, "/usr/local/cuda/lib64/libcudart_static.a", "-lpthread", "-ldl", "-lrt"]
    (folder / "commands.json").write_text(json.dumps({"units": commands, "link": link}, indent=1))
    print(f"{len(commands)} units")
    return 0 if commands else 1


def make(folder: Path, only: str) -> int:
    """Compiles as many units at once as there are cores, and links."""
    todo = json.loads((folder / "commands.json").read_text())
    (folder / "objects").mkdir(exist_ok=True)

    def place(word: str) -> str:
        return word.replace("$ROOT", str(ROOT)).replace("$FOLDER", str(folder))

    def compile_one(unit: dict) -> tuple[str, float, subprocess.CompletedProcess[str]]:
        start = time.monotonic()
        done = subprocess.run([place(word) for word in unit["words"]], capture_output=True, text=True)
        return unit["name"], time.monotonic() - start, done

    units = [unit for unit in todo["units"] if only in unit["name"]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, seconds, done in pool.map(compile_one, units):
            failed += done.returncode != 0
            print(f"{seconds:7.1f} s  {name}{' FAILED: ' + done.stderr if done.returncode else ''}", flush=True)
    if failed:
        return 1
    return subprocess.run([place(word) for word in todo["link"]]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("build", type=Path)
    packing.add_argument("folder", type=Path)
    making = verbs.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--only", default="", help="units with this in their name")
    args = parser.parse_args()
    if args.verb == "pack":
        return pack(args.build.resolve(), args.folder.resolve())
    return make(args.folder.resolve(), args.only)


if __name__ == "__main__":
    sys.exit(main())
