"""Stacks of matrices by `svdctl svd`, from eight callers at once, against what NumPy says of U, S and V^H.

    python3 tests/device/stacks_against_numpy.py SVDCTL ADDRESS FOLDER

Files of 3 to 8 MiB, so that batches have parts of several requests. FOLDER gets the files. Prints the worst residual and
the worst distance from orthogonality of each shape, in units of max(m, n) u. Status 1 where one is beyond 10.
"""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
from pathlib import Path

import numpy as np

SHAPES = [(4, 4), (16, 16), (64, 64), (128, 128), (8, 4), (256, 256)]
STACKS = 48


def distances(command: list[str], folder: Path, number: int) -> tuple[float, float]:
    """The distance of U S V^H from A, relative to the norm of A, and that of U^H U and V^H V from I."""
    rows, cols = SHAPES[number % len(SHAPES)]
    count = (8 << 20) // (8 * rows * cols * (1 + number % 3))
    a = np.random.default_rng(number).standard_normal((count, rows, cols))
    np.save(folder / f"{number}.npy", a)
    subprocess.run([*command, str(folder / f"{number}.npy"), "-o", str(folder / str(number)), "--quiet"], check=True)
    u, s, vh = (np.load(folder / f"{number}.{name}.npy") for name in ("u", "s", "vh"))
    residual = np.linalg.norm(u * s[:, None, :] @ vh - a, axis=(1, 2)) / np.linalg.norm(a, axis=(1, 2))
    unit = np.eye(s.shape[1])
    gaps = [np.linalg.norm(np.swapaxes(u, 1, 2) @ u - unit, axis=(1, 2)), np.linalg.norm(vh @ np.swapaxes(vh, 1, 2) - unit, axis=(1, 2))]
    scale = max(rows, cols) * np.finfo(a.dtype).eps / 2
    return residual.max() / scale, max(gap.max() for gap in gaps) / scale


def main() -> int:
    svdctl, address, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    command = [svdctl, "svd", "--address", address]
    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        found = list(callers.map(lambda number: distances(command, folder, number), range(STACKS)))
    worst = 0.0
    for i, (rows, cols) in enumerate(SHAPES):
        residual, orthogonality = (max(values) for values in zip(*found[i :: len(SHAPES)], strict=True))
        print(f"{rows}x{cols}: residual {residual:.2f}, orthogonality {orthogonality:.2f} of max(m, n) u")
        worst = max(worst, residual, orthogonality)
    return 0 if worst <= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
