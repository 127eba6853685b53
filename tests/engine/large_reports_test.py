"""The reports on large factors, at tiny orders: what they print is complete, accurate and drawn.

    python3 tests/engine/large_reports_test.py FOLDER_OF_PROGRAMS
"""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLOT = ROOT / "engine/bench/plot_large.py"
ORDERS = (48, 75)
STRATEGIES = {"recursive", "modified-modulus", "round-robin", "row-cyclic", "column-cyclic", "reverse-row-cyclic",
              "reverse-column-cyclic"}
VARIANTS = {"block-oriented", "full-block"}
U = 2.0 ** -53
programs = pathlib.Path(".")


def printed(program, *arguments):
    return subprocess.run([programs / program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def rows_of(table):
    return list(csv.DictReader(line for line in table.splitlines() if not line.startswith("#")))


def plot(*arguments):
    return subprocess.run([sys.executable, PLOT, *map(str, arguments)], capture_output=True, text=True)


class FactorReports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.strategies = printed("large_bench", "strategies", *ORDERS)
        cls.spectra = printed("large_accuracy", "spectra", *ORDERS, "--check")

    def test_every_strategy_and_variant_converges(self):
        rows = rows_of(self.strategies)
        self.assertEqual(sorted((int(r["n"]), r["strategy"], r["variant"]) for r in rows),
                         sorted((n, s, v) for n in ORDERS for s in STRATEGIES for v in VARIANTS))
        for row in rows:
            n, pairs = int(row["n"]), int(row["n"]) * (int(row["n"]) - 1) // 2
            with self.subTest(row=row):
                self.assertIn(int(row["sweeps"]), range(2, 13))
                self.assertGreater(int(row["proper_rotations"]), pairs)
                self.assertGreaterEqual(int(row["rotations"]), int(row["proper_rotations"]))
                self.assertLess(int(row["rotations"]), 30 * pairs, n)

    def test_full_blocks_take_fewer_sweeps_and_more_rotations(self):
        by_case = {(r["n"], r["strategy"], r["variant"]): r for r in rows_of(self.strategies)}
        for n in map(str, ORDERS):
            for strategy in STRATEGIES:
                full, other = by_case[n, strategy, "full-block"], by_case[n, strategy, "block-oriented"]
                self.assertLess(int(full["sweeps"]), int(other["sweeps"]))
                self.assertGreater(int(full["rotations"]), int(other["rotations"]))

    def test_eigenvalues_are_those_prescribed(self):
        rows = [r for r in rows_of(self.spectra) if r["solver"] in ("jacobi", "auto")]
        self.assertEqual(len(rows), len(ORDERS) * (4 * len(STRATEGIES) * len(VARIANTS) + 2))
        for row in rows:
            with self.subTest(row=row):
                self.assertLessEqual(float(row["prescribed"]), 10 * int(row["n"]) * U)
                self.assertLessEqual(float(row["least"]), float(row["mean"]))
                self.assertLessEqual(float(row["mean"]), float(row["worst"]))
                self.assertLessEqual(float(row["worst"]), float(row["worst_bound"]))

    def test_lapack_is_beside_us_on_every_matrix(self):
        solvers = {}
        for row in rows_of(self.spectra):
            self.assertTrue(row["prescribed"], row)
            solvers.setdefault(row["matrix"], set()).add(row["solver"])
        definite, indefinite = {"auto", "jacobi", "dgesvd", "dgejsv", "dgesvj", "dsyev"}, {"jacobi", "dsyev"}
        self.assertEqual(solvers, {"spectrum 1": indefinite, "spectrum 2": definite, "spectrum 3": indefinite,
                                   "spectrum 4": definite})

    def test_tables_are_printed_too(self):
        for line in (r"# spectrum 1 +75 \|", r"# spectrum 4 +\| 2\.08 ", "# Every error of ours is within its bound"):
            self.assertRegex(self.spectra, re.compile("^" + line, re.MULTILINE))

    def test_the_plot_has_every_curve(self):
        with tempfile.TemporaryDirectory() as folder:
            tables = [pathlib.Path(folder) / name for name in ("strategies.csv", "spectra.csv")]
            for path, content in zip(tables, (self.strategies, self.spectra)):
                path.write_text(content, encoding="utf-8")
            drawn = pathlib.Path(folder) / "plot.svg"
            # Three times seven strategies; four times seven, dsyev four times, AUTO and three of LAPACK's SVDs twice.
            for arguments, of_variant in ((tables, 61), (tables[:1], 21), (tables[1:], 40)):
                done = plot(*arguments, drawn)
                self.assertEqual(done.returncode, 0, done.stderr)
                curves = xml.etree.ElementTree.parse(drawn).findall(".//{*}polyline")
                self.assertEqual(len(curves), len(VARIANTS) * of_variant)
                for curve in curves:
                    points = curve.get("points").split()
                    self.assertEqual(len(points), len(ORDERS))
                    self.assertTrue(all(re.fullmatch(r"\d+\.\d,\d+\.\d", p) for p in points), points)

    def test_other_tables_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            table, drawn = pathlib.Path(folder) / "table.csv", pathlib.Path(folder) / "plot.svg"
            for content in ("", "n,seconds\n1,2\n", self.strategies.splitlines()[1] + "\n"):
                table.write_text(content, encoding="utf-8")
                done = plot(table, drawn)
                self.assertEqual(done.returncode, 2, content)
                self.assertIn("plot_large: ", done.stderr)
                self.assertFalse(drawn.exists())

    def test_an_unknown_report_is_refused(self):
        for program in ("large_bench", "large_accuracy"):
            done = subprocess.run([programs / program, "nothing", "48"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(program, done.stderr)


if __name__ == "__main__":
    programs = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=1)
