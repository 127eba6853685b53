"""Capacity of MIMO channels, their singular values computed by a svdserve server.

    python -m svdserve.examples.mimo_capacity 127.0.0.1:50051                     # 3GPP CDL-C channels, generated
    python -m svdserve.examples.mimo_capacity 127.0.0.1:50051 channels.npy --check
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import svdserve
from svdserve.examples import cdl_channels


def load(path: Path | None, seed: int) -> tuple[str, np.ndarray]:
    """A name and the channels, shape (..., N_rx, N_tx)."""
    if path is None:
        what = cdl_channels.STANDARD_SETS[0]
        return f"3GPP CDL-{what.profile}", cdl_channels.generate(what, np.random.default_rng(seed))
    return path.name, np.load(path)


def effective_rank(values: np.ndarray) -> np.ndarray:
    """exp of the entropy of the normalized singular values (Roy and Vetterli 2007): from 1 to their number."""
    share = values / np.maximum(values.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    return np.exp(-(share * np.log(np.where(share > 0, share, 1))).sum(axis=-1))


def worst_difference(values: np.ndarray, channels: np.ndarray) -> float:
    """Largest |s - s_numpy| / (u s_max) over all matrices: NumPy's values in double precision, u of ours."""
    wide = np.complex128 if np.iscomplexobj(channels) else np.float64
    reference = np.linalg.svd(channels.astype(wide), compute_uv=False)
    u = np.finfo(values.dtype).eps / 2
    largest = np.maximum(reference[..., :1], np.finfo(values.dtype).tiny)
    return float((np.abs(values - reference) / (u * largest)).max())


def accuracy_bound(rows: int, cols: int, is_complex: bool) -> int:
    """The bound that the service promises for |s - s_exact| / (u s_max)."""
    k = min(rows, cols)
    return ((32 if max(rows, cols) > 64 * max(k, 8) else 16) + 2 * k) * (2 if is_complex else 1)


def report(values: np.ndarray, n_tx: int, snr_db: float) -> None:
    s = values.reshape(-1, values.shape[-1]).astype(np.float64)
    for i, row in enumerate(s[:3]):
        shown = "  ".join(f"{v:8.5f}" for v in row[:8]) + ("  ..." if len(row) > 8 else "")
        print(f"  singular values   {'H[%d]' % i:6} {shown}")

    def line(label: str, unit: str, x: np.ndarray) -> None:
        p5, p50, p95 = np.percentile(x, [5, 50, 95])
        print(f"  {label:24} mean {x.mean():10.6g}   p5 {p5:8.5g}   p50 {p50:8.5g}   p95 {p95:8.5g}   {unit}".rstrip())

    line(f"capacity at {snr_db:g} dB", "bit/s/Hz", cdl_channels.capacity(s, n_tx, snr_db))
    smallest = np.maximum(s[:, -1], np.finfo(np.float64).tiny)
    line("condition number", "dB", 20 * np.log10(np.maximum(s[:, 0], np.finfo(np.float64).tiny) / smallest))
    line("effective rank", f"of {s.shape[1]}", effective_rank(s))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Sends MIMO channels to a svdserve server and prints their capacity.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("channels", nargs="?", type=Path, help=".npy file of shape (..., N_rx, N_tx); "
                        "generated CDL-C channels, 4x4, if absent")
    parser.add_argument("--snr-db", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=cdl_channels.DEFAULT_SEED, help="of the generated channels")
    parser.add_argument("--method", default="auto", help="auto, bidiagonal, bisection or jacobi")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds")
    parser.add_argument("--check", action="store_true", help="compare with numpy.linalg.svd; exit 1 on a difference")
    args = parser.parse_args(arguments)

    name, channels = load(args.channels, args.seed)
    if channels.ndim < 2 or channels.size == 0:
        print(f"mimo_capacity: {name} has shape {channels.shape}, which holds no matrix", file=sys.stderr)
        return 2
    n_rx, n_tx = channels.shape[-2:]
    count = channels.size // (n_rx * n_tx)
    try:
        with svdserve.Client(args.address) as client:
            version = client.info(timeout=args.timeout).version
            seconds = []
            for _ in range(3):  # the first call opens the connection's window and the server's memory
                start = time.perf_counter()
                values, status = client.svdvals(channels, method=args.method, timeout=args.timeout, return_status=True)
                seconds.append(time.perf_counter() - start)
    except svdserve.Error as error:
        print(f"mimo_capacity: {args.address}: {error}", file=sys.stderr)
        return 1

    print(f"{name}: {count} channels, {n_rx}x{n_tx} {channels.dtype.name}; svdserve {version} at {args.address}")
    finite = values.reshape(count, -1)[np.ravel(status) == svdserve.MatrixStatus.OK]
    if len(finite):
        report(finite, n_tx, args.snr_db)
    best = min(seconds)
    print(f"  {'time':24} {best * 1e3:.2f} ms (best of 3), {count / best:,.0f} matrices a second; "
          f"{count - len(finite)} of {count} with a status other than OK")
    if args.check:
        kept = channels.reshape(count, n_rx, n_tx)[np.ravel(status) == svdserve.MatrixStatus.OK]
        worst = worst_difference(finite, kept) if len(kept) else 0.0
        bound = accuracy_bound(n_rx, n_tx, np.iscomplexobj(channels))
        good = worst <= bound
        print(f"  {'against numpy (double)':24} largest |s - s_numpy| {worst:.2f} u s_max, bound {bound}: "
              f"{'agrees' if good else 'DIFFERS'}")
        return 0 if good else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
