"""Eigenvalues of a square MIMO channel, followed over neighbouring subcarriers and from one time slot to the next.

The channel is a sum of paths with delays tau_p and Doppler shifts nu_p,

    H(f, t) = sum_p b_p a_p^T exp(2 pi i (nu_p t - f tau_p)) / sqrt(paths)

for steering vectors a_p and b_p of half-wavelength arrays. Neighbours have nearly the same eigenvectors, so the method
JACOBI may start from those: all subcarriers of a slot from the one in the centre, or each from its own in the slot before.
The eigenvalues then keep the order of the starting vectors, as long as they stay apart: they are followed.

The program prints how many sweeps each start takes, and the time of a slot. That number is the smallest limit at which no
matrix is left to QR. Condition numbers tell how much eigenvalues change with the channel.

    python -m svdserve.examples.channel_eigenvalues 127.0.0.1:50051
    python -m svdserve.examples.channel_eigenvalues 127.0.0.1:50051 --delay-ns 5 --slots 40 --plot eigenvalues.svg
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np

import svdserve

SUBCARRIER_SPACING_HZ, SLOT_SECONDS = 30e3, 0.5e-3
SEED = 38901
MOST_SWEEPS = 30


def channels(antennas: int, subcarriers: int, slots: int, delay: float, doppler: float,
             rng: np.random.Generator) -> np.ndarray:
    """Channels (slots, subcarriers, antennas, antennas), complex64. Delays are below `delay`, in seconds, and Doppler
    shifts below `doppler`, in Hz."""
    paths = 4 * antennas
    steering = [np.exp(1j * np.pi * np.arange(antennas)[:, None] * rng.uniform(-1, 1, paths)) for _ in range(2)]
    gain = np.exp(2j * np.pi * rng.random(paths)) / np.sqrt(paths)
    tau, nu = delay * rng.random(paths), doppler * rng.uniform(-1, 1, paths)
    f = SUBCARRIER_SPACING_HZ * (np.arange(subcarriers) - subcarriers // 2)
    t = SLOT_SECONDS * np.arange(slots)
    turned = gain * np.exp(2j * np.pi * (t[:, None, None] * nu - f[:, None] * tau))
    return ((steering[0] * turned[..., None, :]) @ steering[1].T).astype(np.complex64)


def sweeps_needed(client: svdserve.Client, h: np.ndarray, start: np.ndarray | None = None) -> int:
    """The smallest limit of sweeps by which JACOBI leaves no matrix to QR; MOST_SWEEPS + 1 where there is none."""
    for sweeps in range(1, MOST_SWEEPS + 1):
        _, status = client.eigvals(h, method="jacobi", start=start, max_sweeps=sweeps, return_status=True)
        if not (status == svdserve.MatrixStatus.BY_QR).any():
            return sweeps
    return MOST_SWEEPS + 1


def order_kept(values: np.ndarray) -> np.ndarray:
    """For each step along the first axis whether every eigenvalue is nearer to its last place than to that of another."""
    apart = np.abs(values[1:, ..., :, None] - values[:-1, ..., None, :])
    return (apart.argmin(-1) == np.arange(values.shape[-1])).all(-1)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def follow(client: svdserve.Client, h: np.ndarray) -> list[svdserve.EigResult]:
    """The eigenpairs of each slot, each but the first from those of the slot before."""
    found = [client.eig(h[0], method="jacobi")]
    for slot in h[1:]:
        found.append(client.eig(slot, start=found[-1].eigenvectors))
    return found


def write_plot(path: Path, values: np.ndarray) -> bool:
    """The eigenvalues (steps, n) in the complex plane. An SVG or PNG, by the name of the file. False: matplotlib is not
    installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 6), layout="constrained")
    for track in values.T:
        line, = axes.plot(track.real, track.imag, linewidth=1)
        axes.plot(track[0].real, track[0].imag, "o", markersize=4, color=line.get_color())
    axes.set(xlabel="real part", ylabel="imaginary part; o: lowest subcarrier", aspect="equal")
    figure.savefig(path)
    pyplot.close(figure)
    return True


def report(client: svdserve.Client, h: np.ndarray, repeats: int) -> np.ndarray:
    """Prints a line for each start, and returns the eigenvalues of the last slot, followed from its centre."""
    slots = follow(client, h)
    last, before = h[-1], slots[-2].eigenvectors
    centre = client.eig(last[len(last) // 2], method="jacobi").eigenvectors
    for title, start in (("no start", None), ("the centre subcarrier", centre), ("the slot before", before)):
        sweeps = sweeps_needed(client, last, start)
        took = seconds(lambda start=start: client.eig(last, method="jacobi", start=start), repeats)
        print(f"  jacobi from {title:22} {sweeps:2} sweeps, {took * 1e3:7.2f} ms")
    took = seconds(lambda: client.eig(last, method="qr"), repeats)
    print(f"  qr {'':31}            {took * 1e3:7.2f} ms")
    found = client.eig(last, start=centre, condition=True)
    over_frequency, over_time = order_kept(found.eigenvalues), order_kept(np.stack([slot.eigenvalues for slot in slots]))
    print(f"order kept in {over_frequency.sum()} of {over_frequency.size} steps from subcarrier to subcarrier, and in "
          f"{over_time.sum()} of {over_time.size} from slot to slot")
    condition, of_vectors = found.condition, found.vectors_condition
    assert condition is not None and of_vectors is not None  # requested above
    print(f"condition of an eigenvalue at most {condition.max():.1f}, of eigenvectors at most {of_vectors.max():.1f}")
    return found.eigenvalues


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Eigenvalues of a MIMO channel, followed by a svdserve server.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--antennas", type=int, default=16, help="at both ends")
    parser.add_argument("--subcarriers", type=int, default=64)
    parser.add_argument("--slots", type=int, default=8, help="of 0.5 ms")
    parser.add_argument("--delay-ns", type=float, default=10, help="the longest delay of a path")
    parser.add_argument("--doppler-hz", type=float, default=10, help="the largest Doppler shift of a path")
    parser.add_argument("--repeats", type=int, default=5, help="runs whose shortest time counts")
    parser.add_argument("--plot", type=Path, help="a .svg or .png file; needs matplotlib")
    args = parser.parse_args(arguments)
    if min(args.antennas, args.repeats) < 1 or min(args.subcarriers, args.slots) < 2:
        print("channel_eigenvalues: antennas and repeats must be at least 1, subcarriers and slots at least 2",
              file=sys.stderr)
        return 2
    h = channels(args.antennas, args.subcarriers, args.slots, args.delay_ns * 1e-9, args.doppler_hz,
                 np.random.default_rng(SEED))
    print(f"{args.subcarriers} subcarriers of {args.antennas}x{args.antennas} complex64:")
    try:
        with svdserve.Client(args.address) as client:
            values = report(client, h, args.repeats)
    except svdserve.Error as error:
        print(f"channel_eigenvalues: {args.address}: {error}", file=sys.stderr)
        return 1
    if args.plot:
        written = write_plot(args.plot, values)
        print(f"plot in {args.plot}" if written else "no plot: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
