"""Capacity, U, S, V^H, eigh and eig by a svdserve server against NumPy in this process, on the same channels: CSV on stdout.

Best of 3 on both sides, NumPy with one BLAS thread, one call for the whole batch. NumPy's capacity is that of its users: the
singular values of all channels, then sum log2(1 + SNR s^2 / n) at each SNR. eigh takes the Hermitian parts of square channels,
eig these channels, also in double precision. svdvals of a list are of 2000 stacks of 50 channels each, in twelve shapes,
where NumPy has a call for each stack. `sent` and `returned` are bytes of arrays. The results of the timed calls are
compared first: a difference beyond the bounds ends the program with status 1.

    python client/python/benchmarks/outputs_against_numpy.py 127.0.0.1:50051 unix:/tmp/svdserve.sock
"""

import os

for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_variable] = "1"  # read by the BLAS library while NumPy is imported

import argparse
import csv
import sys

import numpy as np

import svdserve
from against_numpy import best_of, machine

SNRS_DB = {1: [10.0], 10: [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]}


def channels(count: int, rows: int, cols: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    h = rng.standard_normal((count, rows, cols)) + 1j * rng.standard_normal((count, rows, cols))
    return (h / np.sqrt(2)).astype(np.complex64)


def numpy_capacity(h: np.ndarray, snr_db: list[float]) -> np.ndarray:
    gains = np.linalg.svd(h, compute_uv=False) ** 2 / h.shape[-1]
    snr = 10 ** (np.asarray(snr_db, np.float32) / 10)
    return np.log2(1 + snr[:, None] * gains[:, None, :]).sum(-1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("addresses", nargs="+", help="of one server: host:port or unix:/path")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--shape", default="4x4")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows, cols = (int(n) for n in args.shape.split("x"))
    h = channels(args.count, rows, cols)

    good = True
    out = csv.writer(sys.stdout)
    out.writerow(["machine", "address", "work", "shape", "count", "svdserve_ms", "numpy_ms", "ratio", "sent", "returned",
                  "sent_over_returned", "worst_difference"])

    def row(address, work, ours, theirs, returned, worst, bound, sent=h.nbytes, shape=args.shape, count=args.count):
        nonlocal good
        good = good and worst <= bound
        out.writerow([machine(), address, work, shape, count, f"{ours * 1e3:.1f}", f"{theirs * 1e3:.1f}",
                      f"{theirs / ours:.2f}", sent, returned, f"{sent / returned:.1f}", f"{worst:.2e}"])
        sys.stdout.flush()

    def eigen_row(address, work, verb, a, theirs):
        ours, (w, v) = best_of(args.repeats, lambda: verb(a))
        residual = np.linalg.norm(a @ v - v * w[:, None, :], axis=(1, 2)) / np.linalg.norm(a, axis=(1, 2))
        bound = 5 * rows * float(np.finfo(a.dtype).eps)
        row(address, work, ours, theirs, w.nbytes + v.nbytes, float(residual.max()), bound, a.nbytes)

    def list_row(address, client):
        stacks = [channels(50, 2 + i % 3, 2 + i % 4) for i in range(2000)]
        theirs_s, theirs = best_of(args.repeats, lambda: [np.linalg.svd(a, compute_uv=False) for a in stacks])
        ours_s, ours = best_of(args.repeats, lambda: client.svdvals(stacks))
        worst = max(float((np.abs(x - y).max(1) / y[:, 0]).max()) for x, y in zip(ours, theirs, strict=True))
        row(address, "svdvals of a list", ours_s, theirs_s, sum(s.nbytes for s in ours), worst, 10 * 5 * 2.0**-24,
            sum(a.nbytes for a in stacks), "2x2 to 4x5", 50 * len(stacks))

    numpys = {}
    for snrs, snr_db in SNRS_DB.items():
        numpys[snrs] = best_of(args.repeats, lambda: numpy_capacity(h, snr_db))
    numpy_svd_s, _ = best_of(args.repeats, lambda: np.linalg.svd(h, full_matrices=False))
    eigenproblems = []  # name, verb, operand, NumPy's time
    if rows == cols:
        parts = (h + h.conj().swapaxes(1, 2)) / 2
        for work, verb, a in (("eigh", "eigh", parts), ("eigh c128", "eigh", parts.astype(np.complex128)), ("eig", "eig", h),
                              ("eig c128", "eig", h.astype(np.complex128))):
            theirs_s, _ = best_of(args.repeats, lambda: getattr(np.linalg, verb)(a))
            eigenproblems.append((work, verb, a, theirs_s))
    for address in args.addresses:
        with svdserve.Client(address) as client:
            client.capacity(h[:100_000], snr_db=10.0)  # warm: the connection, the server's memory
            for snrs, snr_db in SNRS_DB.items():
                theirs_s, theirs = numpys[snrs]
                ours_s, ours = best_of(args.repeats, lambda: client.capacity(h, snr_db=snr_db))
                worst = float((np.abs(ours - theirs) / np.maximum(theirs, 1)).max())
                row(address, f"capacity at {snrs}", ours_s, theirs_s, ours.nbytes, worst, 1e-4)
            ours_s, (u, s, vh) = best_of(args.repeats, lambda: client.svd(h, full_matrices=False))
            residual = np.linalg.norm(h - (u * s[:, None, :]) @ vh, axis=(1, 2)) / np.linalg.norm(h, axis=(1, 2))
            row(address, "svd", ours_s, numpy_svd_s, u.nbytes + s.nbytes + vh.nbytes, float(residual.max()),
                10 * max(rows, cols) * 2.0**-24)
            list_row(address, client)
            for work, verb, a, theirs_s in eigenproblems:
                eigen_row(address, work, getattr(client, verb), a, theirs_s)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
