"""Which antennas of a large array to switch on: a search by capacity, every step thousands of candidates in one call.

A base station has fewer transmitters than antennas. The example chooses those to connect by the capacity at equal power,
averaged over channels of a 3GPP CDL profile. Each step changes one or two antennas of the best choice so far in all ways
that fit into the step. It asks the server for the capacity of each candidate over all channels. The channels of a
candidate are one group, so that a single number comes back for it.

    python -m svdserve.examples.antenna_selection 127.0.0.1:50051
    python -m svdserve.examples.antenna_selection 127.0.0.1:50051 --antennas 64 --select 8 --plot selection.svg
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

import svdserve
from svdserve.examples import cdl_channels


@dataclasses.dataclass
class Search:
    """The result of a search, step by step."""

    best: np.ndarray  # indices of the antennas, ascending
    capacities: list[float]  # bit/s/Hz of the best choice, before the first step and after each
    evaluated: int = 0  # candidates
    seconds: float = 0.0  # of them on the server


def mean_capacity(client: svdserve.Client, channels: np.ndarray, choices: np.ndarray, snr_db: float) -> np.ndarray:
    """bit/s/Hz of each choice, averaged over the channels.

    channels: (count, n_rx, n_antennas); choices: (candidates, n_select), indices of antennas.
    """
    h = channels[:, :, choices].transpose(2, 0, 1, 3)  # (candidates, count, n_rx, n_select)
    return client.capacity(h, snr_db, group_size=len(channels))[:, 0] / len(channels)


def neighbours(best: np.ndarray, antennas: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Choices that differ from `best` in one antenna, all of them, and in two, drawn at random, up to `candidates`."""
    others = np.setdiff1d(np.arange(antennas), best)
    if len(others) == 0:
        return best[None]
    out, into = (x.reshape(-1) for x in np.meshgrid(np.arange(len(best)), others, indexing="ij"))
    one = np.repeat(best[None], len(out), axis=0)
    one[np.arange(len(out)), out] = into
    more = candidates - len(one)
    if more <= 0:
        return rng.permutation(one)[:candidates]
    if len(best) < 2 or len(others) < 2:
        return one
    two = np.repeat(best[None], more, axis=0)
    rows = np.arange(more)[:, None]
    two[rows, rng.random((more, len(best))).argsort(axis=1)[:, :2]] = \
        others[rng.random((more, len(others))).argsort(axis=1)[:, :2]]
    return np.concatenate([one, two])


def search(client: svdserve.Client, channels: np.ndarray, select: int, *, snr_db: float, candidates: int, steps: int,
           rng: np.random.Generator) -> Search:
    """Starts from neighbouring antennas in the middle and goes to the best candidate until none is better."""
    antennas = channels.shape[-1]
    best = np.arange(select) + (antennas - select) // 2
    found = Search(best, [float(mean_capacity(client, channels, best[None], snr_db)[0])])
    for _ in range(steps):
        choices = neighbours(found.best, antennas, candidates, rng)
        start = time.perf_counter()
        capacities = mean_capacity(client, channels, choices, snr_db)
        found.seconds += time.perf_counter() - start
        found.evaluated += len(choices)
        winner = int(np.argmax(capacities))
        if capacities[winner] <= found.capacities[-1]:
            break
        found.best = np.sort(choices[winner])
        found.capacities.append(float(capacities[winner]))
    return found


def text_plot(capacities: list[float], baseline: float) -> str:
    """A bar for each step."""
    low = min(baseline, *capacities)
    span = max(max(capacities) - low, 1e-9)
    lines = [f"  step {i:3} {c:9.4f} bit/s/Hz {'#' * (1 + round(50 * (c - low) / span))}"
             for i, c in enumerate(capacities)]
    return "\n".join([*lines, f"  random   {baseline:9.4f} bit/s/Hz {'.' * (1 + round(50 * (baseline - low) / span))}"])


def write_plot(path: Path, found: Search, baseline: float, antennas: int) -> bool:
    """An SVG or PNG, by the name of the file. False: matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 5), height_ratios=(5, 1), layout="constrained")
    above.plot(found.capacities, marker="o", label="best choice so far")
    above.axhline(baseline, linestyle="--", color="gray", label="random choice, mean")
    above.set(xlabel="step", ylabel="capacity in bit/s/Hz")
    above.legend()
    below.scatter(np.arange(antennas), np.zeros(antennas), facecolors="none", edgecolors="gray")
    below.scatter(found.best, np.zeros(len(found.best)), color="tab:blue")
    below.set(xlabel="antennas of the array, those chosen filled", yticks=[])
    figure.savefig(path)
    pyplot.close(figure)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Selects antennas of a large array by capacity, on a svdserve server.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--profile", choices=sorted(cdl_channels.profiles()["profiles"]), default="A")
    parser.add_argument("--antennas", type=int, default=32, help="transmit antennas of the array")
    parser.add_argument("--select", type=int, default=8, help="so many of them are used")
    parser.add_argument("--rx", type=int, default=4, help="receive antennas")
    parser.add_argument("--channels", type=int, default=16, help="users over which the capacity is averaged")
    parser.add_argument("--candidates", type=int, default=4000, help="of a step")
    parser.add_argument("--steps", type=int, default=50, help="at most")
    parser.add_argument("--snr-db", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=cdl_channels.DEFAULT_SEED)
    parser.add_argument("--plot", type=Path, help="a .svg or .png file; needs matplotlib")
    args = parser.parse_args(arguments)
    if not 1 <= args.select <= args.antennas or min(args.rx, args.channels, args.candidates) < 1:
        print("antenna_selection: sizes must be at least 1, and --select at most --antennas", file=sys.stderr)
        return 2

    rng = np.random.default_rng(args.seed)
    channels = cdl_channels.generate(
        cdl_channels.ChannelSet(args.profile, args.rx, args.antennas, 100e-9, drops=args.channels, subcarriers=1), rng)
    try:
        with svdserve.Client(args.address) as client:
            any_choice = rng.random((min(args.candidates, 1000), args.antennas)).argsort(axis=1)[:, :args.select]
            baseline = float(mean_capacity(client, channels, any_choice, args.snr_db).mean())
            found = search(client, channels, args.select, snr_db=args.snr_db, candidates=args.candidates,
                           steps=args.steps, rng=rng)
    except svdserve.Error as error:
        print(f"antenna_selection: {args.address}: {error}", file=sys.stderr)
        return 1

    print(f"3GPP CDL-{args.profile}, {args.channels} users with {args.rx} antennas: {args.select} of {args.antennas} "
          f"transmit antennas at {args.snr_db:g} dB")
    print(text_plot(found.capacities, baseline))
    print(f"  chosen {', '.join(map(str, found.best))}")
    print(f"  {found.evaluated} candidates, {found.evaluated * args.channels} channels in {found.seconds:.3f} s: "
          f"{found.evaluated / max(found.seconds, 1e-9):,.0f} candidates a second")
    if args.plot:
        if write_plot(args.plot, found, baseline, args.antennas):
            print(f"  plot in {args.plot}")
        else:
            print("  no plot: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
