#!/usr/bin/env python3
"""The engine on one core against numpy.linalg.svd, eigh and eig, as CSV.

Same process, same data, one BLAS thread, best of 5 by processor time on both sides, random normal matrices, method AUTO.
NumPy calls LAPACK's ?gesdd, ?syevd or ?geev for each matrix. `values`: singular values alone; `vectors`: thin U, S, V^H;
`eigh`: eigenvalues and eigenvectors of Hermitian matrices; `eig`: of general ones. The values of the timed call are
compared, of `eig` their sum with the trace. `worst_u` is the largest difference from NumPy's on the same data, for f32
and c64 from NumPy's in double precision. Its unit is u s_max, for eigenvalues u |A|_2. `residual_u` is the largest |A - U
S V^H|_F / (|A|_F max(m, n) u), of `eig` |A V - V L|_F / (|A|_F n u). `bound_u` is the contract's bound of the former;
that of the latter is 10. Exit status 1: one is exceeded.

    python3 engine/bench/against_numpy.py build/release/lib/libsvdserve_bench.so [values | vectors | eigh | eig ...] > now.csv
    python3 engine/bench/against_numpy.py build/release/lib/libsvdserve_bench.so --recorded before.csv

--lone: calls of one matrix each, of 33 columns and more.
--recorded FILE: the output of an earlier run on such a machine; ratios to NumPy that have fallen by more than 3 % are named.
"""
import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import csv
import ctypes
import platform
import sys
import time

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
SQUARE = [(n, n) for n in (2, 4, 8, 16, 32, 33, 48, 64, 100, 128, 256, 512)]
TALL = [(8, 4), (64, 4), (4, 64), (100, 8), (64, 16), (256, 32)]
SHAPES = {"values": [*SQUARE, *TALL],
          "vectors": [*SQUARE, *TALL],
          "eigh": [(2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (33, 33), (48, 48), (64, 64), (100, 100), (128, 128), (256, 256),
                   (512, 512)],
          "eig": [(2, 2), (3, 3), (4, 4), (8, 8), (16, 16), (24, 24), (32, 32)]}
AUTO = 0
# The goals that were set: (work, shape, dtype) -> times NumPy.
BARS = {("values", (4, 4), "f64"): 15, ("values", (4, 4), "c64"): 25, ("values", (8, 8), "f64"): 8,
        ("values", (8, 8), "c64"): 12, ("vectors", (4, 4), "c64"): 15, ("eigh", (4, 4), "c128"): 10,
        ("eig", (4, 4), "c128"): 5,
        **{("vectors", (32, 32), dtype): 1 for dtype in DTYPES},
        **{(work, (n, n), dtype): 1 for work in ("values", "vectors") for n in (33, 48, 64, 100, 128, 256, 512)
           for dtype in DTYPES}}
WORSE = 0.97  # of the recorded ratio


def best_of_5(f):
    times = []
    for _ in range(5):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return min(times)


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.machine()


def random_matrices(rng, work, name, count, m, n):
    a = rng.standard_normal((count, m, n))
    if name[0] == "c":
        a = a + 1j * rng.standard_normal(a.shape)
    if work == "eigh":
        a = (a + a.conj().swapaxes(1, 2)) / 2
    return np.ascontiguousarray(a.astype(DTYPES[name]))


def measure(library, work, name, a):
    """Seconds of ours and of NumPy's, our values, and the largest residual (0 without vectors)."""
    count, m, n = a.shape
    k, number = min(m, n), list(DTYPES).index(name)
    s = np.empty((count, k), a.real.dtype)
    u, vh = np.empty((count, m, k), a.dtype), np.empty((count, k, n), a.dtype)
    if work == "eig":
        u = np.empty(u.shape, np.result_type(a, np.complex64))
        s = np.empty(s.shape, u.dtype)
    status = 0

    def ours():
        nonlocal status
        if work == "values":
            status |= library.svdserve_bench_values(number, AUTO, m, n, count, 1, a.ctypes.data, s.ctypes.data)
        elif work in ("eigh", "eig"):
            status |= library.svdserve_bench_eigen(number, work == "eig", n, count, 1, a.ctypes.data, s.ctypes.data,
                                                   u.ctypes.data)
        else:
            status |= library.svdserve_bench_svd(number, m, n, count, 1, a.ctypes.data, s.ctypes.data, u.ctypes.data,
                                                 vh.ctypes.data)

    def numpys():
        if work == "eigh":
            np.linalg.eigh(a)
        elif work == "eig":
            np.linalg.eig(a)
        else:
            np.linalg.svd(a, full_matrices=False, compute_uv=work == "vectors")

    ours_s, numpy_s = best_of_5(ours), best_of_5(numpys)
    residual = 0.0
    if work != "values":
        norm = lambda x: np.linalg.norm(x.astype(np.complex128), axis=(1, 2))
        scaled = u.astype(np.complex128) * s[:, None, :]
        right = u.conj().swapaxes(1, 2) if work == "eigh" else vh
        difference = a @ u.astype(np.complex128) - scaled if work == "eig" else a - scaled @ right
        residual = float((norm(difference) / norm(a)).max())
    return ours_s, numpy_s, s, residual if status == 0 else float("inf")


def largest_error(work, s, a):
    """The largest error of the values of a stack in double precision, relative to the norm of each matrix."""
    if work == "eigh":
        exact = np.linalg.eigvalsh(a)
        return float((abs(s - exact) / abs(exact).max(axis=1, keepdims=True)).max())
    exact = np.linalg.svd(a, compute_uv=False)
    if work == "eig":
        traces = np.trace(a, axis1=1, axis2=2)
        return float((abs(s.astype(np.complex128).sum(axis=1) - traces) / exact[:, 0]).max())
    return float((abs(s - exact) / exact[:, :1]).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library")
    parser.add_argument("work", nargs="*", help="values, vectors, eigh, eig; default: all")
    parser.add_argument("--recorded", help="CSV of an earlier run to compare with")
    parser.add_argument("--lone", action="store_true", help="calls of one matrix, of 33 columns and more")
    args = parser.parse_args()
    if unknown := set(args.work) - set(SHAPES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    recorded = {}
    if args.recorded:
        with open(args.recorded) as before:
            rows = csv.DictReader(line for line in before if not line.startswith("#"))
            recorded = {(r["work"], r["shape"], r["dtype"]): float(r["ratio"]) for r in rows}

    library = ctypes.CDLL(args.library)
    library.svdserve_bench_values.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_int] + [ctypes.c_void_p] * 2
    library.svdserve_bench_svd.argtypes = [ctypes.c_int] + [ctypes.c_int64] * 3 + [ctypes.c_int] + [ctypes.c_void_p] * 4
    library.svdserve_bench_eigen.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_int] + [ctypes.c_void_p] * 3
    rng = np.random.default_rng(3)
    good, worse, compared = True, [], 0
    print(f"# {processor()}, one core, NumPy {np.__version__}")
    print("work,shape,dtype,matrices,ours_ms,ours_M_per_s,numpy_ms,numpy_M_per_s,ratio,bar,worst_u,bound_u,residual_u")
    for work in args.work or SHAPES:
        for m, n in SHAPES[work]:
            for name in DTYPES:
                k = min(m, n)
                if args.lone and k <= 32:
                    continue
                count = 1 if args.lone else max(1_600_000 // (m * n * k), 500 if k <= 32 else 64 if k <= 128 else 4)
                a = random_matrices(rng, work, name, count, m, n)
                ours_s, numpy_s, s, residual = measure(library, work, name, a)
                wide = a.astype(np.complex128 if name[0] == "c" else np.float64)
                u = np.finfo(a.real.dtype).eps / 2
                worst = largest_error(work, s, wide) / u
                residual_u = residual / (max(m, n) * u)
                bound = ((32 if max(m, n) > 64 * max(k, 8) else 16) + 2 * k) * (2 if name[0] == "c" else 1)
                bound = 10 * n if work in ("eigh", "eig") else bound
                good = good and worst <= bound and residual_u <= 10
                shape, ratio = f"{m}x{n}", numpy_s / ours_s
                print(f"{work},{shape},{name},{count},{ours_s * 1e3:.3f},{count / ours_s / 1e6:.4g},{numpy_s * 1e3:.3f},"
                      f"{count / numpy_s / 1e6:.4g},{ratio:.2f},{BARS.get((work, (m, n), name), '')},{worst:.1f},{bound},"
                      f"{residual_u:.1f}", flush=True)
                if before := recorded.get((work, shape, name)):
                    compared += 1
                    if ratio < WORSE * before:
                        worse.append(f"{work} {shape} {name}: {before:.2f} -> {ratio:.2f}")
    if args.recorded:
        print(f"# {len(worse)} of {compared} ratios are more than 3 % below {args.recorded}", *worse, sep="\n# ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
