"""Vibration modes of a stack of stiff parts on soft isolators, where numpy.linalg.eigh loses the slow modes.

The structure is a chain of masses. Springs within a part are stiff, and a part stands on the one below by an isolator. Its
stiffness matrix is K = B^T diag(k) B, so M^(-1/2) K M^(-1/2) = G G^T with G = M^(-1/2) B^T diag(k)^(1/2). As soon as K is
added up, the soft springs are rounding errors beside the stiff ones. client.eigh_factored takes G itself.

The product of all eigenvalues is known: the product of all k / m. So the digits of all of them can be judged.

    python -m svdserve.examples.structure_modes 127.0.0.1:50051
    python -m svdserve.examples.structure_modes 127.0.0.1:50051 --parts 6 --plot modes.svg
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import svdserve


def structure(parts: int, masses: int, stiff: float, soft: float) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness (N/m) of the spring below each mass, and the masses (kg). Isolators soften from the ground up."""
    k = np.full(parts * masses, stiff)
    k[::masses] = soft * 10.0 ** -np.arange(parts)
    return k, np.full(parts * masses, 100.0)


def factor(k: np.ndarray, m: np.ndarray) -> np.ndarray:
    """G. Column e belongs to the spring between the masses e - 1 and e; the first one is fixed to the ground."""
    g = np.diag(np.sqrt(k / m))
    g[np.arange(len(k) - 1), np.arange(1, len(k))] = -np.sqrt(k[1:] / m[:-1])
    return g


def hertz(eigenvalues: np.ndarray) -> np.ndarray:
    """Frequencies of modes; a negative eigenvalue, which no structure has, becomes NaN."""
    return np.sqrt(np.where(eigenvalues >= 0, eigenvalues, np.nan)) / (2 * np.pi)


def lost_digits(eigenvalues: np.ndarray, k: np.ndarray, m: np.ndarray) -> float:
    """|log10| of the product of the eigenvalues over what it must be; infinite where one is not positive."""
    if (eigenvalues <= 0).any():
        return float("inf")
    return float(abs(np.log10(eigenvalues).sum() - np.log10(k).sum() + np.log10(m).sum()))


def write_plot(path: Path, ours: np.ndarray, theirs: np.ndarray) -> bool:
    """An SVG or PNG, by the name of the file. False: matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.semilogy(np.arange(1, len(ours) + 1), ours, "o", fillstyle="none", label="eigh_factored")
    axes.semilogy(np.arange(1, len(theirs) + 1), theirs, "x", markersize=4, label="numpy.linalg.eigvalsh of K")
    axes.set(xlabel="mode", ylabel="frequency in Hz")
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Vibration modes of stiff parts on soft isolators, by a svdserve server.")
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--parts", type=int, default=4, help="stiff parts, one on the other")
    parser.add_argument("--masses", type=int, default=12, help="of a part")
    parser.add_argument("--stiff", type=float, default=1e14, help="N/m within a part")
    parser.add_argument("--soft", type=float, default=10.0, help="N/m of the lowest isolator")
    parser.add_argument("--plot", type=Path, help="a .svg or .png file; needs matplotlib")
    args = parser.parse_args(arguments)
    if min(args.parts, args.masses) < 1 or not min(args.stiff, args.soft) > 0:
        print("structure_modes: sizes must be at least 1, and stiffnesses positive", file=sys.stderr)
        return 2
    k, m = structure(args.parts, args.masses, args.stiff, args.soft)
    g = factor(k, m)
    try:
        with svdserve.Client(args.address) as client:
            found = client.eigh_factored(g, np.ones(len(k)))
    except svdserve.Error as error:
        print(f"structure_modes: {args.address}: {error}", file=sys.stderr)
        return 1
    theirs = np.linalg.eigvalsh(g @ g.T)
    print(f"{len(k)} masses; the slowest modes in Hz:")
    for i, (here, numpy) in enumerate(zip(hertz(found.eigenvalues), hertz(theirs))):
        if i <= args.parts:
            print(f"  mode {i + 1:2}  eigh_factored {here:12.6g}  numpy.linalg.eigvalsh {numpy:12.6g}")
    print(f"digits lost in the product of all: {lost_digits(found.eigenvalues, k, m):.1g} by eigh_factored, "
          f"{lost_digits(theirs, k, m):.2g} by NumPy")
    if args.plot:
        written = write_plot(args.plot, hertz(found.eigenvalues), hertz(theirs))
        print(f"plot in {args.plot}" if written else "no plot: matplotlib is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
