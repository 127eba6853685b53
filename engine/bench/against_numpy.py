#!/usr/bin/env python3
"""The engine on one core against numpy.linalg.svd, as CSV.

Same process, same data, one BLAS thread, best of 5 on both sides, random normal matrices, method AUTO. The values of the timed
call are compared: `worst_u` is the largest difference from NumPy's on the same data in units of u s_max (for f32 and c64 from
NumPy's in double precision), `bound_u` what the contract allows; exit status 1 where it is passed.

    python3 engine/bench/against_numpy.py build/release/lib/libsvdserve_bench.so
"""
import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import ctypes
import platform
import sys
import time

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
SHAPES = [(2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 4), (4, 64)]
AUTO = 0
# What was set out to be reached: (shape, dtype) -> times NumPy.
BARS = {((4, 4), "f64"): 15, ((4, 4), "c64"): 25, ((8, 8), "f64"): 8, ((8, 8), "c64"): 12}


def best_of_5(f):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main():
    engine = ctypes.CDLL(sys.argv[1]).svdserve_bench_values
    engine.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_int] + [ctypes.c_void_p] * 2
    rng = np.random.default_rng(3)
    good = True
    print(f"# {processor()}, one core, NumPy {np.__version__}")
    print("shape,dtype,matrices,ours_ms,ours_M_per_s,numpy_ms,numpy_M_per_s,ratio,bar,worst_u,bound_u")
    for m, n in SHAPES:
        for number, (name, dtype) in enumerate(DTYPES.items()):
            k, count = min(m, n), max(1_600_000 // (m * n * min(m, n)), 500)
            a = rng.standard_normal((count, m, n))
            if name[0] == "c":
                a = a + 1j * rng.standard_normal(a.shape)
            a = np.ascontiguousarray(a.astype(dtype))
            s = np.empty((count, k), a.real.dtype)
            status = 0

            def ours():
                nonlocal status
                status |= engine(number, AUTO, m, n, count, 1, a.ctypes.data, s.ctypes.data)

            ours_s, numpy_s = best_of_5(ours), best_of_5(lambda: np.linalg.svd(a, compute_uv=False))
            wide = np.complex128 if name[0] == "c" else np.float64
            exact = np.linalg.svd(a.astype(wide), compute_uv=False)
            u = np.finfo(a.real.dtype).eps / 2
            worst = float((abs(s - exact) / (u * exact[:, :1])).max())
            bound = ((32 if max(m, n) > 64 * max(k, 8) else 16) + 2 * k) * (2 if name[0] == "c" else 1)
            good = good and status == 0 and worst <= bound
            bar = BARS.get(((m, n), name), "")
            print(f"{m}x{n},{name},{count},{ours_s * 1e3:.3f},{count / ours_s / 1e6:.3f},{numpy_s * 1e3:.3f},"
                  f"{count / numpy_s / 1e6:.3f},{numpy_s / ours_s:.1f},{bar},{worst:.1f},{bound}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
