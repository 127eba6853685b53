"""Where to put the elements of a transmit array: their positions follow the gradient of the capacity.

A base station has few elements and room for more: they may stand anywhere on a line, half a wavelength apart at least. The
example moves them so that the capacity at equal power becomes best, averaged over subcarriers and users of a 3GPP CDL
profile. Torch makes the channels from the positions p_j,

    H[u, j](f) = sum_n exp(-2 pi i f tau_n) sum_r g_nr a_u(zoa_nr, aoa_nr) exp(2 pi i p_j sin(zod_nr) sin(aod_nr)),

and svdserve.torch.capacity has their capacity and its gradient from the server, in one call a step. Adam takes the steps.
Then torch takes the same steps alone, with slogdet. Users that took no part say what the positions are worth.
Simplifications are those of cdl_channels.

    python -m svdserve.examples.array_positions 127.0.0.1:50051 --plot positions.svg     # needs torch
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import svdserve
from svdserve.examples import cdl_channels

try:
    import torch
except ImportError:
    torch = None

SPACING = 0.5  # wavelengths between neighbours at least
DELAY_SPREAD_SECONDS = 100e-9
LEARNING_RATE = 0.1


@dataclasses.dataclass
class Users:
    """The rays of some users, on clusters of as many rays: a cluster with fewer has rays of no power."""

    receive: Any  # (drops, clusters, rx, rays), complex: the gain of each ray at each receive antenna
    directions: Any  # (drops, clusters, rays): sin(zod) sin(aod)
    turns: Any  # (clusters, subcarriers), complex: exp(-2 pi i f tau)

    def channels(self, positions: Any) -> Any:
        """(drops * subcarriers, rx, tx), for positions in wavelengths."""
        transmit = torch.polar(torch.ones(()), 2 * math.pi * self.directions[..., None] * positions)
        paths = self.receive @ transmit  # (drops, clusters, rx, tx)
        drops, clusters, rx, tx = paths.shape
        h = self.turns.mT @ paths.reshape(drops, clusters, rx * tx)
        return h.reshape(-1, rx, tx)


def draw(what: cdl_channels.ChannelSet, rng: np.random.Generator) -> Users:
    """Users of a profile."""
    frequencies = cdl_channels.SUBCARRIER_SPACING_HZ * np.arange(what.subcarriers)
    drops = [list(cdl_channels.clusters_of_a_drop(what, rng)) for _ in range(what.drops)]
    most = max(len(cluster.rays["gain"]) for cluster in drops[0])
    antennas = np.arange(what.n_rx)[:, None]

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, most - array.shape[-1])])

    def arrival(cluster: cdl_channels.Cluster) -> np.ndarray:
        rays = cluster.rays
        phases = np.pi * antennas * np.sin(rays["zoa"]) * np.sin(rays["aoa"])
        return padded(cluster.amplitude * rays["gain"] * np.exp(1j * phases))

    def departure(cluster: cdl_channels.Cluster) -> np.ndarray:
        return padded(np.sin(cluster.rays["zod"]) * np.sin(cluster.rays["aod"]))

    turns = np.exp(-2j * np.pi * np.outer([cluster.delay for cluster in drops[0]], frequencies))
    return Users(torch.tensor(np.array([[arrival(c) for c in drop] for drop in drops]), dtype=torch.complex64),
                 torch.tensor(np.array([[departure(c) for c in drop] for drop in drops]), dtype=torch.float32),
                 torch.tensor(turns, dtype=torch.complex64))


def placed(slack: Any, aperture: float) -> Any:
    """Positions in wavelengths, ascending in [0, aperture] and SPACING apart at least, of any real numbers.

    slack: one number more than there are elements. Its softmax divides the room that the spacing leaves.
    """
    elements = len(slack) - 1
    room = aperture - SPACING * (elements - 1)
    return room * torch.softmax(slack, 0).cumsum(0)[:-1] + SPACING * torch.arange(elements)


def start_of(elements: int) -> Any:
    """Slack of elements near the middle."""
    slack = torch.zeros(elements + 1)
    slack[[0, -1]] = 2.0
    return slack


def climb(users: Users, elements: int, aperture: float, steps: int,
          capacity: Callable[[Any], Any]) -> tuple[list[float], Any, float]:
    """The mean capacity before each step and after the last, the positions, and the seconds of the steps."""
    slack = start_of(elements).requires_grad_()
    optimizer = torch.optim.Adam([slack], LEARNING_RATE)
    curve = []
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        mean = capacity(users.channels(placed(slack, aperture))).mean()
        (-mean).backward()
        optimizer.step()
        curve.append(mean.item())
    seconds = time.perf_counter() - start
    with torch.no_grad():
        positions = placed(slack, aperture)
        curve.append(capacity(users.channels(positions)).mean().item())
    return curve, positions, seconds


def slogdet(h: Any, snr_db: float) -> Any:
    """Capacities by torch alone."""
    gram = torch.eye(h.shape[-2]) + 10 ** (snr_db / 10) / h.shape[-1] * h @ h.mH
    return torch.linalg.slogdet(gram).logabsdet / math.log(2)


def text_plot(curve: list[float], every: int) -> str:
    """A bar for some of the steps."""
    low, span = min(curve), max(max(curve) - min(curve), 1e-9)
    shown = [*range(0, len(curve) - 1, every), len(curve) - 1]
    return "\n".join(f"  step {i:3} {curve[i]:9.4f} bit/s/Hz {'#' * (1 + round(50 * (curve[i] - low) / span))}"
                     for i in shown)


def write_plot(path: Path, curves: dict[str, list[float]], positions: dict[str, np.ndarray]) -> bool:
    """An SVG or PNG, by the name of the file. False: matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 5), height_ratios=(4, 1), layout="constrained")
    for (name, curve), style in zip(curves.items(), ("-", ":")):
        above.plot(curve, style, label=name)
    above.set(xlabel="step", ylabel="mean capacity in bit/s/Hz")
    above.legend()
    for height, (name, where) in enumerate(positions.items()):
        below.scatter(where, np.full(len(where), height), label=name)
    below.set(xlabel="position in wavelengths", yticks=range(len(positions)), yticklabels=list(positions), ylim=(-1, 2))
    figure.savefig(path)
    pyplot.close(figure)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Places the elements of an array by gradients from a svdserve server.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--profile", choices=sorted(cdl_channels.profiles()["profiles"]), default="C")
    parser.add_argument("--elements", type=int, default=8, help="of the transmit array")
    parser.add_argument("--aperture", type=float, default=10.0, help="room for them in wavelengths")
    parser.add_argument("--rx", type=int, default=8, help="receive antennas")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--subcarriers", type=int, default=132)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--snr-db", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=cdl_channels.DEFAULT_SEED)
    parser.add_argument("--plot", type=Path, help="a .svg or .png file; needs matplotlib")
    args = parser.parse_args(arguments)
    if torch is None:
        print("array_positions: needs torch; pip install torch", file=sys.stderr)
        return 2
    if min(args.elements, args.rx, args.users, args.subcarriers, args.steps) < 1:
        print("array_positions: sizes must be at least 1", file=sys.stderr)
        return 2
    if args.aperture <= SPACING * (args.elements - 1):
        print(f"array_positions: --aperture must be more than {SPACING * (args.elements - 1):g} wavelengths for "
              f"{args.elements} elements", file=sys.stderr)
        return 2
    return run(args)


def run(args: argparse.Namespace) -> int:
    from svdserve import torch as served

    rng = np.random.default_rng(args.seed)
    what = cdl_channels.ChannelSet(args.profile, args.rx, args.elements, DELAY_SPREAD_SECONDS, args.users, args.subcarriers)
    users, others = draw(what, rng), draw(what, rng)
    even = {f"every {gap:.2g} wavelengths": gap * torch.arange(args.elements)
            for gap in (SPACING, args.aperture / max(args.elements - 1, 1))}
    try:
        with svdserve.Client(args.address) as client:
            climb(users, args.elements, args.aperture, 1, lambda h: served.capacity(h, args.snr_db, client=client))  # warm
            climb(users, args.elements, args.aperture, 1, lambda h: slogdet(h, args.snr_db))
            ours, positions, seconds = climb(users, args.elements, args.aperture, args.steps,
                                             lambda h: served.capacity(h, args.snr_db, client=client))
            worth = {name: served.capacity(others.channels(where), args.snr_db, client=client).mean().item()
                     for name, where in {**even, "by gradients": positions}.items()}
    except svdserve.Error as error:
        print(f"array_positions: {args.address}: {error}", file=sys.stderr)
        return 1
    theirs, _, their_seconds = climb(users, args.elements, args.aperture, args.steps, lambda h: slogdet(h, args.snr_db))

    print(f"3GPP CDL-{args.profile}, {args.users} users with {args.rx} antennas, {args.subcarriers} subcarriers: "
          f"{args.elements} elements on {args.aperture:g} wavelengths at {args.snr_db:g} dB")
    print(text_plot(ours, max(args.steps // 12, 1)))
    print(f"  {args.steps} steps of {args.users * args.subcarriers} channels: {1e3 * seconds / args.steps:.1f} ms each by "
          f"svdserve.torch, {1e3 * their_seconds / args.steps:.1f} ms by torch alone")
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"  the two differ by at most {apart:.1e} bit/s/Hz along the way")
    print(f"  positions {', '.join(f'{p:.2f}' for p in positions.tolist())}")
    for name, value in worth.items():
        print(f"  other users, elements {name}: {value:.4f} bit/s/Hz")
    if args.plot:
        where = {"start": placed(start_of(args.elements), args.aperture).numpy(), "end": positions.numpy()}
        if write_plot(args.plot, {"svdserve.torch": ours, "torch alone": theirs}, where):
            print(f"  plot in {args.plot}")
        else:
            print("  no plot: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
