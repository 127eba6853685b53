#!/usr/bin/env python3
"""Compiles from nothing, without a compiler cache, and prints the CPU seconds and the peak memory of each translation unit.

    tests/support/compile_cost.py                          the quickstart's build: preset release, svdserve and svdctl
    tests/support/compile_cost.py -n 40 asan all           the 40 dearest units of another preset
    tests/support/compile_cost.py -D SVDSERVE_SIMD=native  with a setting of CMake
    tests/support/compile_cost.py --show FILE              the table again, from the file that a run has named

CPU seconds are user and system time, so that what else the machine does disturbs them little.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def record(log: str, command: list[str]) -> int:
    """Runs one compiler and appends 'seconds megabytes object' to `log`."""
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    name = command[command.index("-o") + 1] if "-o" in command else " ".join(command)
    line = f"{used.ru_utime + used.ru_stime:.1f} {used.ru_maxrss // 1024} {name}\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())  # one write, so that lines of parallel compilers stay whole
    os.close(descriptor)
    return status


def build(preset: str, targets: list[str], settings: list[str]) -> Path:
    """Configures and builds `targets` in build/cost-<preset>; returns the file of measurements."""
    folder = ROOT / "build" / f"cost-{preset}"
    shutil.rmtree(folder, ignore_errors=True)
    log = folder / "units.txt"
    launcher = f"{sys.executable};{Path(__file__).resolve()};--record;{log}"
    options = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("CXX", "CUDA")]
    options += ["-DSVDSERVE_CCACHE=OFF", *(f"-D{setting}" for setting in settings)]
    subprocess.run(["cmake", "--preset", preset, "-B", folder, *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    log.write_text("")  # without the compilers that CMake has tried out
    wanted = ["--target", *targets] if targets != ["all"] else []
    subprocess.run(["cmake", "--build", folder, "-j", str(os.cpu_count()), *wanted], cwd=ROOT, check=True)
    return log


def table(log: Path, rows: int) -> str:
    """The `rows` dearest units, then all together; of a unit that was compiled again, the last figures."""
    figures = {}
    for line in log.read_text().splitlines():
        seconds, megabytes, name = line.split(maxsplit=2)
        figures[name.replace("/CMakeFiles/", "/").replace(".dir/", "/")] = float(seconds), int(megabytes)
    units = sorted(((*figure, name) for name, figure in figures.items()), reverse=True)
    lines = [f"{'CPU s':>8} {'peak MB':>8}  unit"]
    lines += [f"{seconds:8.1f} {megabytes:8d}  {name}" for seconds, megabytes, name in units[:rows]]
    total, peak = sum(unit[0] for unit in units), max((unit[1] for unit in units), default=0)
    lines.append(f"{total:8.1f} {peak:8d}  {len(units)} units")
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:2] == ["--record"]:
        return record(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="release")
    parser.add_argument("target", nargs="*", default=["svdserve", "svdctl"])
    parser.add_argument("-n", type=int, default=1000, help="rows of the table")
    parser.add_argument("-D", action="append", default=[], metavar="NAME=VALUE", help="a setting for CMake")
    parser.add_argument("--show", type=Path, help="the file of a finished run")
    arguments = parser.parse_args()
    log = arguments.show or build(arguments.preset, arguments.target, arguments.D)
    print(f"{log}\n{table(log, arguments.n)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
