"""How far the progress of large matrices is from the time that has passed: CSV on stdout.

For each case the largest |fraction - elapsed / total| over all updates of a call. `server`: the server's fraction within its
computation. `overall`: of the whole call with upload and download. `signed` is that of overall with its sign, `at` the part
of the call that had passed then. With several runs the worst of each. Matrices are random normal, with thin U and V.

    SVDSERVE_PROGRAM=build/release/bin/svdserve python client/python/benchmarks/progress_against_time.py
    python client/python/benchmarks/progress_against_time.py 127.0.0.1:50051 --case svd:2000x2000:f64 --runs 5
"""

import argparse
import csv
import dataclasses
import sys
from typing import Any, cast

import numpy as np

import svdserve

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
CALLS = {
    "svd": lambda client, a, **rest: client.svd(a, full_matrices=False, **rest),
    "jacobi": lambda client, a, **rest: client.svd(a, full_matrices=False, method="jacobi", **rest),
    "top10": lambda client, a, **rest: client.svd(a, full_matrices=False, top_k=10, **rest),
    "eigh": lambda client, a, **rest: client.eigh(a + a.conj().T, **rest),
    "factored": lambda client, a, **rest: client.eigh(a + a.conj().T, method="factored", **rest),
    "eig": lambda client, a, **rest: client.eig(a, **rest),
}
DEFAULT_CASES = ("svd:2000x2000:f64", "svd:20000x2000:f64", "svd:200000x64:f64")


@dataclasses.dataclass(frozen=True)
class Case:
    call: str
    rows: int
    cols: int
    dtype: str

    @staticmethod
    def parse(text: str) -> "Case":
        try:
            call, shape, dtype = text.split(":")
            rows, cols = shape.split("x")
            case = Case(call, int(rows), int(cols), dtype)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form svd:2000x2000:f64") from None
        if call not in CALLS or dtype not in DTYPES or min(case.rows, case.cols) < 1:
            raise argparse.ArgumentTypeError(f"{text!r}: call one of {', '.join(CALLS)}, type one of {', '.join(DTYPES)}, "
                                             "numbers at least 1")
        return case

    def matrix(self) -> np.ndarray:
        rng = np.random.default_rng(1)
        a = rng.standard_normal((self.rows, self.cols))
        if self.dtype.startswith("c"):
            a = a + 1j * rng.standard_normal((self.rows, self.cols))
        return a.astype(DTYPES[self.dtype])


@dataclasses.dataclass(frozen=True)
class Run:
    seconds: float
    compute_seconds: float
    updates: int
    ticks: int  # of the computation
    server: float
    overall: float  # with its sign
    at: float


def run(client: svdserve.Client, case: Case, a: np.ndarray) -> Run:
    told: list[svdserve.Progress] = []
    result: Any = CALLS[case.call](client, a, progress=told.append)
    if any(y.overall < x.overall for x, y in zip(told, told[1:])):
        raise AssertionError("the progress has fallen")
    total = told[-1].elapsed_seconds
    (summary,) = result.summaries
    end = next(p.elapsed_seconds for p in told if p.stage == "download")  # of the computation
    begin = end - summary.compute_seconds
    ticks = [p for p in told if p.stage not in ("upload", "queued", "download")]
    server = [abs(p.fraction - min(max((p.elapsed_seconds - begin) / summary.compute_seconds, 0.0), 1.0)) for p in ticks]
    signed = [(p.overall - p.elapsed_seconds / total, p.elapsed_seconds / total) for p in told]
    worst, at = max(signed, key=lambda pair: abs(pair[0]))
    return Run(total, summary.compute_seconds, len(told), len(ticks), max(server, default=0.0), worst, at)


def measure(client: svdserve.Client, cases: list[Case], runs: int) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["call", "shape", "dtype", "seconds", "compute_seconds", "updates", "ticks", "server", "overall", "signed", "at"])
    for case in cases:
        a = case.matrix()
        all_runs = [run(client, case, a) for _ in range(runs)]
        worst = max(all_runs, key=lambda r: abs(r.overall))
        out.writerow([case.call, f"{case.rows}x{case.cols}", case.dtype, f"{worst.seconds:.3g}", f"{worst.compute_seconds:.3g}",
                      worst.updates, worst.ticks, f"{max(r.server for r in all_runs):.3f}", f"{abs(worst.overall):.3f}",
                      f"{worst.overall:+.3f}", f"{worst.at:.2f}"])
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=cast(str, __doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("address", nargs="?", help="of a server that runs; without it a private one, svdserve.local()")
    parser.add_argument("--case", action="append", type=Case.parse, help=f"CALL:MxN:TYPE, may be repeated; default: {DEFAULT_CASES}")
    parser.add_argument("--runs", type=int, default=3, help="of each case (default 3)")
    arguments = parser.parse_args()
    cases = arguments.case or [Case.parse(text) for text in DEFAULT_CASES]
    with svdserve.Client(arguments.address) if arguments.address else svdserve.local() as client:
        measure(client, cases, arguments.runs)


if __name__ == "__main__":
    main()
