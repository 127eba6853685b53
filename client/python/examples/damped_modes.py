"""Modes of a building with dampers, followed while the dampers grow stronger.

Storeys of mass m stand on one another, on columns of stiffness k, and dampers of strength c lie in some of them. The free
motion M x'' + C x' + K x = 0 is y' = A y for y = (w0 x, x'), with A = [[0, w0 I], [-M^-1 K / w0, -M^-1 C]], w0^2 = k / m.
An eigenvalue of A has a mode's decay rate, with a minus sign, for real part, and its angular frequency for imaginary part.
A mode with real eigenvalues is overdamped: it does not swing.

Left eigenvectors w beside the right ones v tell how each eigenvalue moves: d lambda / d c = w^H (dA / d c) v / w^H v. The
program follows the modes by that from one damping to the next, and compares it with finite differences.

    python -m svdserve.examples.damped_modes 127.0.0.1:50051
    python -m svdserve.examples.damped_modes 127.0.0.1:50051 --storeys 8 --every 3 --plot dampers.svg
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import svdserve

MASS, STIFFNESS = 1e5, 1e8  # kg and N/m, of a storey
UNIT = float(np.sqrt(MASS * STIFFNESS))  # N s/m: a damper of this strength matters


def chain(strengths: np.ndarray) -> np.ndarray:
    """The matrix of the columns, or of the dampers, below each storey; the lowest stands on the ground."""
    above = strengths[1:]
    return np.diag(strengths + np.append(above, 0)) - np.diag(above, 1) - np.diag(above, -1)


def motion(storeys: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """A without dampers, and dA / d c for dampers in every `every`-th storey from the ground."""
    w0, zero = np.sqrt(STIFFNESS / MASS), np.zeros((storeys, storeys))
    dampers = chain((np.arange(storeys) % every == 0).astype(float))
    undamped = np.block([[zero, w0 * np.eye(storeys)], [-w0 * chain(np.ones(storeys)), zero]])
    return undamped, np.block([[zero, zero], [zero, -dampers / MASS]])


def slopes(found: svdserve.EigLeftResult, da: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """d lambda / d c of each eigenvalue, and |w^H v|, which vanishes where two of them meet."""
    left, right = found.left_eigenvectors.conj().swapaxes(-1, -2), found.eigenvectors.swapaxes(-1, -2)
    products = (left * right).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return ((left @ da) * right).sum(-1) / products, np.abs(products)


def nearest(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """For each expected number the place of its own one in `found`: the nearest pair first, then the next."""
    distances = np.abs(expected[:, None] - found)
    order = np.empty(len(found), int)
    for _ in order:
        i, j = np.unravel_index(distances.argmin(), distances.shape)
        order[i] = j
        distances[i], distances[:, j] = np.inf, np.inf
    return order


def followed(values: np.ndarray, rates: np.ndarray, dampings: np.ndarray) -> np.ndarray:
    """An order of the eigenvalues at each damping, (steps, 2 storeys). Columns 2 i and 2 i + 1 are the i-th mode's."""
    order = [np.lexsort((values[0].imag, np.abs(values[0].imag)))]  # conjugate pairs, slowest first
    for i, step in enumerate(np.diff(dampings)):
        here, moves = values[i, order[-1]], rates[i, order[-1]] * step
        moves[~(np.abs(moves) < np.abs(here) / 2)] = 0  # near a meeting, where the rate is not finite, too
        order.append(nearest(here + moves, values[i + 1]))
    return np.array(order)


def difference(client: svdserve.Client, a: np.ndarray, da: np.ndarray, dampings: np.ndarray,
               found: svdserve.EigLeftResult) -> float:
    """The largest difference of the slopes from central differences, as shares of eigenvalue over damping.

    Eigenvalues that nearly meet others are left out: there a finite difference is none of a smooth function.
    """
    h, worst = 1e-4, 0.0
    rates, products = slopes(found, da)
    below, above = (client.eigvals(a + (dampings * (1 + side * h))[:, None, None] * da) for side in (-1, 1))
    for c, w, rate, product, low, high in zip(dampings, found.eigenvalues, rates, products, below, above):
        good = product > 0.3
        secant = (high[nearest(w + rate * c * h, high)] - low[nearest(w - rate * c * h, low)]) / (2 * c * h)
        worst = max(worst, float((np.abs(secant - rate) * c / np.abs(w).max())[good].max(initial=0)))
    return worst


def overdamped_from(values: np.ndarray) -> np.ndarray:
    """The first step at which both eigenvalues of each mode are real; the number of steps where there is none."""
    both = (values.imag == 0).reshape(len(values), -1, 2).all(-1)
    return np.where(both.any(0), both.argmax(0), len(values))


def write_plot(path: Path, dampings: np.ndarray, values: np.ndarray) -> bool:
    """An SVG or PNG, by the name of the file. False: matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (decay, frequency) = pyplot.subplots(2, figsize=(7, 7), layout="constrained", sharex=True)
    for mode, start in enumerate(overdamped_from(values)):
        pair = values[:, 2 * mode:2 * mode + 2]
        decay.loglog(dampings, -pair.real, color=f"C{mode}", label=[f"mode {mode + 1}", "_"])
        frequency.semilogx(dampings, np.abs(pair.imag).max(-1) / (2 * np.pi), color=f"C{mode}")
        if start < len(values):
            decay.plot(dampings[start], -pair[start, 0].real, "x", color=f"C{mode}")
            frequency.plot(dampings[start], 0, "x", color=f"C{mode}")
    decay.set(ylabel="decay rate in 1/s; x: overdamped from here")
    frequency.set(xlabel="strength of each damper in N s/m", ylabel="frequency in Hz")
    decay.legend(loc="upper left", ncols=2)
    figure.savefig(path)
    pyplot.close(figure)
    return True


def report(dampings: np.ndarray, values: np.ndarray) -> None:
    """A line for each mode."""
    for mode, start in enumerate(overdamped_from(values)):
        upper = values[:start, 2 * mode + 1]
        ratio = -upper.real / np.abs(upper)
        best = ratio.argmax()
        end = f"overdamped from {dampings[start]:.3g} N s/m" if start < len(values) else "never overdamped"
        print(f"  mode {mode + 1}: {upper[0].imag / (2 * np.pi):7.4f} Hz, damping ratio up to {ratio[best]:.3f} at "
              f"{dampings[best]:.3g} N s/m, {end}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Modes of a building with dampers, by a svdserve server.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--storeys", type=int, default=6)
    parser.add_argument("--every", type=int, default=2, help="the lowest of this number of storeys has a damper")
    parser.add_argument("--steps", type=int, default=120, help="dampings, from 0.01 to 100 of sqrt(k m)")
    parser.add_argument("--plot", type=Path, help="a .svg or .png file; needs matplotlib")
    args = parser.parse_args(arguments)
    if min(args.storeys, args.every) < 1 or args.steps < 2:
        print("damped_modes: sizes must be at least 1, and steps at least 2", file=sys.stderr)
        return 2
    a, da = motion(args.storeys, args.every)
    dampings = UNIT * np.logspace(-2, 2, args.steps)
    try:
        with svdserve.Client(args.address) as client:
            found = client.eig(a + dampings[:, None, None] * da, left=True)
            checked = difference(client, a, da, dampings, found)
    except svdserve.Error as error:
        print(f"damped_modes: {args.address}: {error}", file=sys.stderr)
        return 1
    order = followed(found.eigenvalues, slopes(found, da)[0], dampings)
    values = np.take_along_axis(found.eigenvalues, order, -1)
    dampers = -(-args.storeys // args.every)
    print(f"{args.storeys} storeys, {dampers} dampers of {dampings[0]:.3g} to {dampings[-1]:.3g} N s/m:")
    report(dampings, values)
    print(f"slopes by left eigenvectors: at most {checked:.1g} from finite differences")
    if args.plot:
        written = write_plot(args.plot, dampings, values)
        print(f"plot in {args.plot}" if written else "no plot: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
