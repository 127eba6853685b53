"""Thin U, S and V^H of one large matrix by a server on this machine's processors, beside numpy.linalg.svd: CSV on stdout.

Processor seconds of the server alone, and of this process for NumPy, which has as many BLAS threads as the server has. In
turns; the medians, and their ratio. The reply's values are compared with NumPy's.

    SVDSERVE_PROGRAM=build/release/bin/svdserve python client/python/benchmarks/large_against_numpy.py --turns 3
"""

import argparse
import csv
import os
import statistics
import sys
import time
from typing import cast

import numpy as np

import svdserve

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def processor_seconds(pid: int) -> float:
    """All threads of a process of Linux."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def random_matrix(rows: int, cols: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((rows, cols))
    if dtype.startswith("c"):
        a = a + 1j * rng.standard_normal((rows, cols))
    return a.astype(DTYPES[dtype])


def measure(client: svdserve.LocalClient, a: np.ndarray, turns: int) -> list[float]:
    """Medians: processor seconds of the server and of NumPy, then seconds that passed."""
    ours, theirs, ours_passed, theirs_passed = [], [], [], []
    for _ in range(turns):
        before, start = processor_seconds(client.pid), time.perf_counter()
        result = client.svd(a, full_matrices=False)
        ours_passed.append(time.perf_counter() - start)
        ours.append(processor_seconds(client.pid) - before)
        cpu, start = time.process_time(), time.perf_counter()
        _, s, _ = np.linalg.svd(a, full_matrices=False)
        theirs_passed.append(time.perf_counter() - start)
        theirs.append(time.process_time() - cpu)
        error = np.max(np.abs(result.S - s)) / s[0]
        if not error < 10 * max(a.shape) * np.finfo(a.dtype).eps:
            raise AssertionError(f"values differ by {error:.1e} of the largest")
    return [statistics.median(x) for x in (ours, theirs, ours_passed, theirs_passed)]


def main() -> None:
    parser = argparse.ArgumentParser(description=cast(str, __doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", action="append", help="MxN, may be repeated; default: 20000x2000")
    parser.add_argument("--dtype", choices=DTYPES, default="f64")
    parser.add_argument("--turns", type=int, default=3, help="default 3")
    arguments = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["shape", "dtype", "server_cpu_s", "numpy_cpu_s", "ratio", "server_s", "numpy_s"])
    with svdserve.local() as client:
        for shape in arguments.shape or ["20000x2000"]:
            rows, cols = map(int, shape.split("x"))
            ours, theirs, ours_passed, theirs_passed = measure(client, random_matrix(rows, cols, arguments.dtype), arguments.turns)
            out.writerow([shape, arguments.dtype, f"{ours:.3g}", f"{theirs:.3g}", f"{ours / theirs:.2f}", f"{ours_passed:.3g}",
                          f"{theirs_passed:.3g}"])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
