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
PROTO = (ROOT / "proto/svdserve/v1/svd_service.proto").read_text(encoding="utf-8")
STRATEGIES = {name.lower().replace("_", "-") for name in re.findall(r"PIVOT_STRATEGY_(\w+) = [1-9]", PROTO)}
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
            # Convergence has three panels. Accuracy has four, with dsyev in each, AUTO and three of LAPACK's SVDs in two.
            convergence, accuracy = 3 * len(STRATEGIES), 4 * len(STRATEGIES) + 12
            for arguments, of_variant in ((tables, convergence + accuracy), (tables[:1], convergence),
                                          (tables[1:], accuracy)):
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
        for program, *arguments in (("large_bench", "nothing", "48"), ("large_accuracy", "nothing", "48"),
                                    ("large_accuracy", "hermitian", "48", "--dtype", "f32")):
            done = subprocess.run([programs / program, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(program, done.stderr)


class HermitianReport(unittest.TestCase):
    MATRICES = {"random", "spectrum of 2011", "four clusters", "rank n/2", "pairs +-x", "D B D over 1e+-3"}
    SOLVERS = {"tridiagonal", "factored", "lapack"}

    @classmethod
    def setUpClass(cls):
        cls.report = printed("large_accuracy", "hermitian", *ORDERS, "--check")

    def test_every_solver_meets_the_contract_on_every_matrix(self):
        rows = rows_of(self.report)
        self.assertEqual(sorted((int(r["n"]), r["dtype"], r["matrix"], r["solver"]) for r in rows),
                         sorted((n, d, m, s) for n in ORDERS for d in ("f64", "c128") for m in self.MATRICES
                                for s in self.SOLVERS))
        for row in rows:
            with self.subTest(row=row):
                for error in ("residual", "orthogonality", "trace", "absolute"):
                    self.assertTrue(0 <= float(row[error]) <= 10, error)
                self.assertEqual(row["relative"] == "", row["matrix"] == "rank n/2")
                self.assertEqual(row["reference"], "long double" if row["matrix"][0] in "rD" and "/" not in row["matrix"]
                                 else "prescribed")

    def test_factored_finds_ranks_and_small_eigenvalues(self):
        for row in rows_of(self.report):
            n = int(row["n"])
            if row["solver"] != "factored":
                self.assertEqual(row["relative_bound"], "")
                continue
            with self.subTest(row=row):
                self.assertEqual(int(row["rank"]), (n + 1) // 2 if row["matrix"] == "rank n/2" else n)
                if row["matrix"].startswith("D"):
                    self.assertLess(float(row["relative"]), 1e-13)
                    self.assertLess(float(row["relative"]), float(row["relative_bound"]))

    def test_the_table_has_the_worst_cases(self):
        for line in (r"# f64 +n worst +\| TRIDIAGONAL +\| FACTORED +\| dsyevd", r"# c128 .*zheevd",
                     r"# +75 residual +\| \d\S* \w", "# Every error of ours is within its bound"):
            self.assertRegex(self.report, re.compile("^" + line, re.MULTILINE))

    def test_options_select(self):
        rows = rows_of(printed("large_accuracy", "hermitian", 48, "--dtype", "c128", "--matrix", "D", "--solvers",
                               "tridiagonal,lapack", "--references", 40))
        self.assertEqual([(r["dtype"], r["matrix"], r["solver"], r["relative"]) for r in rows],
                         [("c128", "D B D over 1e+-3", s, "") for s in ("tridiagonal", "lapack")])


class TimesReport(unittest.TestCase):
    def test_one_thread_is_beside_us_up_to_an_order(self):
        report = printed("large_accuracy", "times", *ORDERS, "--sequential", ORDERS[0])
        rows = rows_of(report)
        self.assertEqual([int(r["n"]) for r in rows], list(ORDERS))
        for row in rows:
            self.assertGreater(float(row["with_v"]), 0)
            self.assertGreater(float(row["u_alone"]), 0)
            self.assertIn(int(row["sweeps"]), range(2, 20))
        ratio = float(rows[0]["sequential_with_v"]) / float(rows[0]["with_v"])
        self.assertAlmostEqual(float(rows[0]["speedup_with_v"]), ratio, delta=0.02 * ratio)
        self.assertEqual(rows[1]["sequential_with_v"] + rows[1]["speedup_u_alone"], "")
        self.assertIn("357 s", report)

    def test_every_number_of_signs_of_the_paper(self):
        rows = rows_of(printed("large_accuracy", "sign_times", 48))
        self.assertEqual([int(r["paper_seconds"]) for r in rows], [273, 274, 276, 285, 312, 321, 354, 356, 357])
        self.assertEqual([int(r["positive"]) for r in rows], [0, 1, 1, 1, 1, 2, 6, 12, 24])
        self.assertEqual(float(rows[-1]["of_half"]), 1)


if __name__ == "__main__":
    programs = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=1)
