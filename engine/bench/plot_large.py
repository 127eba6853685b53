#!/usr/bin/env python3
"""Convergence and accuracy of large matrices, drawn from the output of `large_bench strategies` and `large_accuracy
spectra`, in the form of figures 7 and 8 of Novakovic (2015), SIAM J. Sci. Comput. 37, C1-C30.

    build/release/bin/large_bench strategies 128 192 256 384 512 > strategies.csv
    build/release/bin/large_accuracy spectra 128 192 256 384 512 > spectra.csv
    python3 engine/bench/plot_large.py strategies.csv spectra.csv factor.svg

Each variant has a row of panels over the order n. They are outer sweeps of each pivot strategy, rotations as multiples of the
n (n - 1) / 2 pairs, and seconds over those of reverse-row-cyclic. Below them each variant has the largest relative error of an
eigenvalue for each of the four spectra, with AUTO's and LAPACK's in both rows. Some strategies are the same where the number
of blocks is a power of two: then the earlier curve is the wider. Needs nothing but Python.
"""
import argparse
import csv
import dataclasses
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

STRATEGIES = {"reverse-row-cyclic": "#d62728", "recursive": "#1f77b4", "reverse-column-cyclic": "#ff7f0e", "row-cyclic": "#2ca02c",
              "column-cyclic": "#9467bd", "modified-modulus": "#8c564b", "round-robin": "#e377c2"}
NEW_STRATEGY = "#000080"
VARIANTS = ("block-oriented", "full-block")
SOLVERS = {"auto": "#000000", "dgesvd": "#777777", "dgejsv": "#bcbd22", "dgesvj": "#17becf", "dsyev": "#bbbbbb"}
BASIS = "reverse-row-cyclic"
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, BOTTOM = 290, 250, 46, 26, 34


@dataclasses.dataclass
class Curve:
    color: str
    width: float
    points: list[tuple[int, float]]  # (n, y), ascending


@dataclasses.dataclass
class Panel:
    title: str
    curves: list[Curve]
    logarithmic: bool = False


def read(paths):
    """Returns the rows of `large_bench strategies` and those of `large_accuracy spectra`."""
    strategies, spectra = [], []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            rows = list(reader)
        if {"n", "strategy", "variant", "sweeps", "rotations", "seconds"} <= set(reader.fieldnames or ()):
            strategies += rows
        elif {"report", "n", "matrix", "solver", "strategy", "variant", "prescribed"} <= set(reader.fieldnames or ()):
            spectra += [row for row in rows if row["report"] == "spectra"]
        else:
            raise ValueError(f"{path}: neither `large_bench strategies` nor `large_accuracy` printed this")
    for row in strategies:
        STRATEGIES.setdefault(row["strategy"], NEW_STRATEGY)
    for row in spectra:
        if row["solver"] == "jacobi":
            STRATEGIES.setdefault(row["strategy"], NEW_STRATEGY)
    return strategies, spectra


def strategy_curves(rows, value):
    """A curve for each strategy that `rows`, of one variant, have; value(row) is its y."""
    curves = []
    for place, (strategy, color) in enumerate(STRATEGIES.items()):
        points = sorted((int(row["n"]), value(row)) for row in rows if row["strategy"] == strategy)
        if points:
            curves.append(Curve(color, 4.5 - 0.5 * place, points))
    return curves


def pairs(row):
    return int(row["n"]) * (int(row["n"]) - 1) / 2


def convergence_panels(rows, variant):
    rows = [row for row in rows if row["variant"] == variant]
    basis = {row["n"]: float(row["seconds"]) for row in rows if row["strategy"] == BASIS}
    timed = [row for row in rows if basis.get(row["n"], 0) > 0]
    panels = [
        Panel(f"{variant}: sweeps", strategy_curves(rows, lambda row: int(row["sweeps"]))),
        Panel(f"{variant}: rotations / pairs", strategy_curves(rows, lambda row: int(row["rotations"]) / pairs(row))),
        Panel(f"{variant}: seconds / {BASIS}'s",
              strategy_curves(timed, lambda row: float(row["seconds"]) / basis[row["n"]])),
    ]
    return [panel for panel in panels if panel.curves]


def accuracy_panels(rows, variant):
    panels = []
    for matrix in sorted({row["matrix"] for row in rows}):
        drawn = [row for row in rows if row["matrix"] == matrix and row["prescribed"]]
        curves = strategy_curves([row for row in drawn if row["solver"] == "jacobi" and row["variant"] == variant],
                                 lambda row: float(row["prescribed"]))
        for solver, color in SOLVERS.items():
            points = sorted((int(row["n"]), float(row["prescribed"])) for row in drawn if row["solver"] == solver)
            if points:
                curves.append(Curve(color, 2, points))
        panels.append(Panel(f"{variant}: errors, {matrix}", curves, logarithmic=True))
    return panels


def ticks(low, high, logarithmic):
    """Values to label on the y axis, which they enclose."""
    if logarithmic:
        return [10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10(max(high - low, high * 0.1)))
    step *= next(f for f in (0.2, 0.5, 1, 2, 5) if (high - low) / (f * step) <= 6 or f == 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * i for i in range(first, last + (first == last) + 1)]


def text(x, y, content, anchor="middle", size=11):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'


def draw_panel(panel, x0, y0):
    """The SVG elements of a panel whose upper left corner is there."""
    orders = sorted({n for curve in panel.curves for n, _ in curve.points})
    values = [y for curve in panel.curves for _, y in curve.points]
    if panel.logarithmic:
        values = [y for y in values if y > 0]
    labels = ticks(min(values), max(values), panel.logarithmic)
    scale = math.log10 if panel.logarithmic else float
    width, height = PANEL_WIDTH - LEFT - 12, PANEL_HEIGHT - TOP - BOTTOM

    def place(n, y):
        across = 0.5 if len(orders) == 1 else math.log(n / orders[0]) / math.log(orders[-1] / orders[0])
        up = (scale(max(y, labels[0])) - scale(labels[0])) / (scale(labels[-1]) - scale(labels[0]))
        return x0 + LEFT + across * width, y0 + TOP + (1 - up) * height

    parts = [text(x0 + LEFT + width / 2, y0 + 16, panel.title, size=12),
             f'<rect x="{x0 + LEFT}" y="{y0 + TOP}" width="{width}" height="{height}" fill="none" stroke="#000"/>']
    for y in labels:
        across, up = place(orders[0], y)
        parts += [f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + width}" y1="{up:.1f}" y2="{up:.1f}" stroke="#ddd"/>',
                  text(x0 + LEFT - 4, up + 4, f"{y:.0e}" if panel.logarithmic else f"{y:g}", "end")]
    parts += [text(place(n, labels[0])[0], y0 + TOP + height + 15, str(n)) for n in orders]
    for curve in panel.curves:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve.points))
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{curve.color}" stroke-width="{curve.width:g}" '
                     f'stroke-linejoin="round"/>')
    return parts


def draw_legend(x0, y0):
    parts = []
    for i, (name, color) in enumerate({**STRATEGIES, **SOLVERS}.items()):
        y = y0 + TOP + 8 + 15 * i
        parts += [f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + 34}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2.5"/>',
                  text(x0 + LEFT + 42, y + 4, "AUTO" if name == "auto" else name, "start")]
    return parts


def svg(strategies, spectra):
    rows = [panels for make, table in ((convergence_panels, strategies), (accuracy_panels, spectra)) if table
            for panels in (make(table, variant) for variant in VARIANTS)]
    parts = []
    for i, panels in enumerate(rows):
        for j, panel in enumerate(panels):
            parts += draw_panel(panel, j * PANEL_WIDTH, i * PANEL_HEIGHT)
    legend_column = len(rows[0])
    parts += draw_legend(legend_column * PANEL_WIDTH, 0)
    width, height = max(legend_column + 1, *map(len, rows)) * PANEL_WIDTH, len(rows) * PANEL_HEIGHT
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
                      f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Draws convergence and accuracy of large factors.")
    parser.add_argument("tables", nargs="+", type=Path, help="CSV of large_bench strategies, large_accuracy spectra")
    parser.add_argument("plot", type=Path, help="the .svg file to write")
    args = parser.parse_args(arguments)
    try:
        strategies, spectra = read(args.tables)
    except (OSError, ValueError) as error:
        print(f"plot_large: {error}", file=sys.stderr)
        return 2
    if not strategies and not spectra:
        print("plot_large: there is nothing to draw", file=sys.stderr)
        return 2
    args.plot.write_text(svg(strategies, spectra), encoding="utf-8")
    print(f"{args.plot}: {len(strategies)} rows of strategies, {len(spectra)} of spectra")
    return 0


if __name__ == "__main__":
    sys.exit(main())
