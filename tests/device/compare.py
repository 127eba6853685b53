#!/usr/bin/env python3
"""Says which figures of one file of results of tests/device/run.sh are worse than those recorded by more than 3 %.

    compare.py NEW [OLD ...]     default: the files of results/ beside this script; of each figure the newest, by file name

It compares rates of our own programs alone. Each is relative to a figure that both runs measured beside it on their machine.
That is the copy of its table, the bus, torch, or the echo of its round. Exit status 1: one is worse.
"""
import csv
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
WORSE = 0.97
# Columns that are other programs' figures, counts, or follow from others.
NOT_OURS = re.compile(r"left to QR|shape|dtype|matrices|gesv|Xsyev|peer|ceiling|copy|/")


def parts_of(text):
    """{part: its lines} of a results file."""
    parts, lines = {}, []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = parts.setdefault(line[3:].strip(), [])
        else:
            lines.append(line)
    return parts


def table_figures(part, lines):
    """{figure: rate} of CSV tables, which begin with a line shape,dtype,..."""
    copy = next((float(m[1]) for line in lines if (m := re.search(r"copy ([\d.]+) TB/s", line))), 1.0)
    head, found = None, {}
    for cells in csv.reader(lines):
        if cells[:2] == ["shape", "dtype"]:
            head = cells
        elif head and len(cells) == len(head):
            for name, cell in zip(head, cells):
                if NOT_OURS.search(name.replace("M/s", "")):
                    continue
                try:
                    found[f"{part} {cells[0]} {cells[1]} {name}"] = float(cell) / copy
                except ValueError:
                    pass
    return found


def service_figures(lines):
    """Rates relative to the echo's of the same size and round, medians over the rounds."""
    rates = {}
    for line in lines:
        if found := re.match(r"(.*), (\d+) MiB, round (\d+) +([\d.]+) M/s", line):
            rates[found[1], found[2], found[3]] = float(found[4])
    shares = {}
    for (name, size, number), rate in rates.items():
        if name != "echo" and ("echo", size, number) in rates:
            shares.setdefault(f"service {name}, {size} MiB, of the echo", []).append(rate / rates["echo", size, number])
    return {name: statistics.median(values) for name, values in shares.items()}


def figures(text):
    found = {}
    for part, lines in parts_of(text).items():
        if part == "service":
            found |= service_figures(lines)
        elif part == "host":
            found |= {f"host: of the bus, {m[1]}": float(m[2])
                      for line in lines if (m := re.search(r"(\w+ GPUs?) .* ([\d.]+) of the bus", line))}
        else:
            found |= table_figures(part, lines)
    return found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    recorded = [pathlib.Path(f) for f in sys.argv[2:]]
    # Several GPUs are another machine.
    recorded = recorded or [f for f in sorted((HERE / "results").glob("*.txt")) if not re.search(r"-x\d+$", f.stem)]
    new, old = figures(pathlib.Path(sys.argv[1]).read_text()), {}
    for file in recorded:
        old |= figures(file.read_text())
    both = [name for name in old if name in new and old[name] > 0]
    worse = [name for name in both if new[name] < WORSE * old[name]]
    print(f"{len(worse)} of {len(both)} figures are more than 3 % worse than those recorded")
    for name in worse:
        print(f"  {name}: {new[name] / old[name] - 1:+.1%}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
