"""Singular values by a svdserve server against numpy.linalg.svd in this process, on the same data: CSV on stdout.

Best of 5 on both sides, NumPy with one BLAS thread, random normal matrices, one call for the whole batch. The results of
the timed calls are compared first: a difference beyond the accuracy contract ends the program with status 1.

    python client/python/benchmarks/against_numpy.py 127.0.0.1:50051
    python client/python/benchmarks/against_numpy.py 127.0.0.1:50051 --case 8x8:c64:50000
"""

import os

for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_variable] = "1"  # read by the BLAS library while NumPy is imported

import argparse
import csv
import dataclasses
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import svdserve

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
DEFAULT_CASES = ("4x4:c64:100000", "4x4:f64:100000", "8x8:c64:50000", "2x2:c64:200000", "16x16:f64:5000",
                 "4x64:c64:10000")


@dataclasses.dataclass(frozen=True)
class Case:
    rows: int
    cols: int
    dtype: str
    count: int

    @staticmethod
    def parse(text: str) -> "Case":
        try:
            shape, dtype, count = text.split(":")
            rows, cols = shape.split("x")
            case = Case(int(rows), int(cols), dtype, int(count))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form 4x4:c64:100000") from None
        if dtype not in DTYPES or min(case.rows, case.cols, case.count) < 1:
            raise argparse.ArgumentTypeError(f"{text!r}: type one of {', '.join(DTYPES)}, numbers at least 1")
        return case

    def matrices(self) -> np.ndarray:
        rng = np.random.default_rng(1)
        shape = (self.count, self.rows, self.cols)
        a = rng.standard_normal(shape)
        if self.dtype.startswith("c"):
            a = a + 1j * rng.standard_normal(shape)
        return a.astype(DTYPES[self.dtype])

    def bound(self) -> float:
        """Largest permitted |s - s_ref| / (u s_max): the accuracy contract, on both sides of the comparison."""
        k, longest = min(self.rows, self.cols), max(self.rows, self.cols)
        units = (32 if longest > 64 * max(k, 8) else 16) + 2 * k
        return 2 * units * (2 if self.dtype.startswith("c") else 1)


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest run, and its result."""
    best, answer = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        if seconds < best:
            best, answer = seconds, result
    return best, answer


def machine() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            model = next(line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{model} x{os.cpu_count()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--case", type=Case.parse, action="append", metavar="MxN:TYPE:COUNT")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--piece-mib", type=float, help="size of the pieces in which a batch is sent")
    parser.add_argument("--in-flight", type=int, help="pieces under way at once")
    args = parser.parse_args()
    tuning = {}
    if args.piece_mib:
        tuning["piece_bytes"] = int(args.piece_mib * (1 << 20))
    if args.in_flight:
        tuning["max_in_flight"] = args.in_flight

    out = csv.writer(sys.stdout)
    out.writerow(["machine", "shape", "dtype", "count", "svdserve_ms", "numpy_ms", "ratio", "svdserve_matrices_per_s",
                  "worst_difference_u_smax", "numpy_version"])
    with svdserve.Client(args.address, **tuning) as client:
        for case in args.case or [Case.parse(c) for c in DEFAULT_CASES]:
            a = case.matrices()
            client.svdvals(a)  # warm: the connection, the server's memory
            ours, values = best_of(args.repeats, lambda: client.svdvals(a))
            numpys, reference = best_of(args.repeats, lambda: np.linalg.svd(a, compute_uv=False))
            u = np.finfo(values.dtype).eps / 2
            worst = float((np.abs(values.astype(np.float64) - reference) / (u * reference[:, :1])).max())
            out.writerow([machine(), f"{case.rows}x{case.cols}", case.dtype, case.count, f"{ours * 1e3:.2f}",
                          f"{numpys * 1e3:.2f}", f"{numpys / ours:.2f}", f"{case.count / ours:.0f}", f"{worst:.2f}",
                          np.__version__])
            sys.stdout.flush()
            if not worst <= case.bound():
                print(f"against_numpy: {case}: difference {worst:.1f} u s_max, bound {case.bound():.0f}",
                      file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
