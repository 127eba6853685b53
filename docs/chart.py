"""Writes docs/rates.svg: decompositions a second with U, S and V, this engine beside cuSOLVER, on one GPU.

    python3 docs/chart.py            # from the newest results of tests/device that have them
    python3 docs/chart.py --check    # exit status 1 where the chart is not up to date
"""

import itertools
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent
CHART = DOCS / "rates.svg"
RESULTS = DOCS.parent / "tests" / "device" / "results"
HEAD = "shape,dtype,matrices,ours M/s,gesvdjBatched M/s,gesvdaStridedBatched M/s"
SHAPES = ("2x2", "4x4", "8x8", "16x16", "32x32")
SERIES = (("svdserve's engine", "#1f6fb4"), ("cuSOLVER gesvdaStridedBatched (approximate)", "#9aa5b1"),
          ("cuSOLVER gesvdjBatched", "#c9d1d9"))
WIDTH, LEFT, TOP, ROW, BAR = 760, 60, 76, 54, 13
LOW, HIGH = 5, 10  # powers of ten on the axis


def newest():
    """Name of the results file, and the rows of its table of vectors."""
    for path in sorted(RESULTS.glob("*.txt"), reverse=True):
        text = path.read_text(encoding="utf-8")
        if HEAD in text and not re.search(r"-x\d+$", path.stem):
            lines = text[text.index(HEAD):].splitlines()[1:]
            table = itertools.takewhile(re.compile(r"\d+x\d+,").match, lines)
            return path.name, {tuple(r.split(",")[:2]): [float(x) * 1e6 for x in r.split(",")[3:6]]
                               for r in table if ",c64," in r}
    sys.exit("chart: no results have a table of vectors")


def x_of(rate):
    return LEFT + (math.log10(rate) - LOW) / (HIGH - LOW) * (WIDTH - LEFT - 90)


def words(rate):
    power, unit = (1e9, " billion") if rate >= 1e9 else (1e6, " million")
    return f"{rate / power:.3g}{unit}"


def chart():
    name, rows = newest()
    height = TOP + ROW * len(SHAPES) + 46
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
           'font-size="12" fill="#24292f">', f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           '<text x="10" y="20" font-size="14" font-weight="bold">Complex matrices (c64) decomposed a second with U, S and '
           'V, one NVIDIA H200</text>']
    for i, (label, colour) in enumerate(SERIES):
        x = 10 + (0, 150, 480)[i]
        out += [f'<rect x="{x}" y="34" width="12" height="12" fill="{colour}"/>',
                f'<text x="{x + 18}" y="44">{label}</text>']
    bottom = TOP + ROW * len(SHAPES)
    for power in range(LOW, HIGH + 1):
        x = x_of(10.0 ** power)
        out += [f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#e1e4e8"/>',
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">1e{power}</text>']
    for r, shape in enumerate(SHAPES):
        ours, jacobi, approximate = rows[(shape, "c64")]
        y = TOP + ROW * r
        out.append(f'<text x="{LEFT - 8}" y="{y + 26}" text-anchor="end">{shape}</text>')
        for i, rate in enumerate((ours, approximate, jacobi)):
            top = y + 2 + i * (BAR + 2)
            out += [f'<rect x="{LEFT}" y="{top}" width="{x_of(rate) - LEFT:.1f}" height="{BAR}" fill="{SERIES[i][1]}"/>',
                    f'<text x="{x_of(rate) + 5:.1f}" y="{top + 11}" font-size="11">{words(rate)}</text>']
    out += [f'<text x="10" y="{height - 8}" font-size="10" fill="#57606a">Matrices on the GPU, logarithmic scale. '
            f'tests/device/results/{name}, device_vectors_bench; drawn by docs/chart.py.</text>', "</svg>"]
    return "\n".join(out) + "\n"


def main():
    wanted = chart()
    if sys.argv[1:] == ["--check"]:
        if not CHART.exists() or CHART.read_text(encoding="utf-8") != wanted:
            print("docs/rates.svg is not up to date: run docs/chart.py")
            return 1
        return 0
    CHART.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
