"""The SVD of one large matrix, with its progress, computed by a svdserve server.

    python -m svdserve.examples.large_matrix 127.0.0.1:50051                      # 1000 x 1000, random
    python -m svdserve.examples.large_matrix 127.0.0.1:50051 a.npy --method jacobi --check
    python -m svdserve.examples.large_matrix 127.0.0.1:50051 --hyperbolic         # V^H J V = J, half of J is -1
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import svdserve


class Bar:
    """A progress bar on a terminal; elsewhere a line for each stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._terminal = sys.stdout.isatty()

    def show(self, p: svdserve.Progress) -> None:
        stage = f"sweep {p.sweep}" if p.stage == "sweep" else p.stage
        if self._terminal:
            print(f"\r  {stage:14} [{'=' * int(30 * p.fraction):30}] {p.fraction:4.0%}  {p.elapsed_seconds:.1f} s",
                  end="\033[K", flush=True)
        elif p.stage != self._stage:
            print(f"  {p.stage:14} after {p.elapsed_seconds:.3f} s")
        self._stage = p.stage

    def clear(self) -> None:
        if self._terminal:
            print("\r\033[K", end="")


def errors(a: np.ndarray, j: np.ndarray | None, result: svdserve.SVDResult) -> list[tuple[str, float, float]]:
    """The promises of a decomposition: name, error in units of the last place, bound."""
    u, s, vh = (x.astype(np.complex128 if np.iscomplexobj(a) else np.float64) for x in result)
    unit, largest = np.finfo(result.S.dtype).eps / 2, max(a.shape)
    orthogonality = max(10.0, largest ** 0.5)
    found = [("residual", np.linalg.norm((u * s) @ vh - a) / np.linalg.norm(a) / (largest * unit), 10.0),
             ("U orthonormal", np.linalg.norm(u.conj().T @ u - np.eye(len(s))) / (len(u) * unit), orthogonality)]
    if j is None:
        reference = np.linalg.svd(a, compute_uv=False)
        bound = (32 + 2 * len(s)) * (2 if np.iscomplexobj(a) else 1)
        return found + [("V orthonormal", np.linalg.norm(vh @ vh.conj().T - np.eye(len(vh))) / (largest * unit),
                         orthogonality),
                        ("values, to NumPy's", np.abs(s - reference).max() / reference[0] / unit, bound)]
    off = np.linalg.norm((vh * j) @ vh.conj().T - np.diag(j)) / np.linalg.norm(vh) ** 2
    return found + [("V^H J V = J", off / (largest * unit), orthogonality)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", help="of the server, such as 127.0.0.1:50051")
    parser.add_argument("file", type=Path, nargs="?", help=".npy with a matrix; default: a random one")
    parser.add_argument("--order", type=int, default=1000, help="of the random matrix (default 1000)")
    parser.add_argument("--method", default="auto", help="auto or jacobi (default auto)")
    parser.add_argument("--hyperbolic", action="store_true", help="the hyperbolic decomposition, half of J is -1")
    parser.add_argument("--check", action="store_true", help="check the result, against NumPy's values too")
    args = parser.parse_args()
    if args.order < 1:
        parser.error(f"--order is {args.order}, it must be at least 1")
    a = np.load(args.file, mmap_mode="r") if args.file else np.random.default_rng(1).standard_normal((args.order,) * 2)
    j = np.where(np.arange(a.shape[-1]) % 2, -1, 1) if args.hyperbolic else None
    bar, begin = Bar(), time.perf_counter()
    try:
        with svdserve.Client(args.address) as client:
            if j is None:
                result = client.svd(a, full_matrices=False, method=args.method, progress=bar.show)
            else:
                result = client.hsvd(a, j, method=args.method, progress=bar.show)
    except svdserve.Error as error:
        bar.clear()
        print(f"large_matrix: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    bar.clear()
    how = "".join(f", {x.method} on {x.device}: {x.sweeps} sweeps, {x.rotations} rotations, {x.compute_seconds:.3g} s of "
                  "computing" for x in result.summaries)
    print(f"  {' x '.join(map(str, a.shape))} {a.dtype} in {seconds:.3g} s{how}")
    print(f"  largest and smallest singular value {result.S.max():.6g}, {result.S.min():.6g}")
    good = bool((result.status == svdserve.MatrixStatus.OK).all())
    for name, error, bound in errors(np.asarray(a), j, result) if args.check else ():
        print(f"  {name:20} {error:8.3f} u, bound {bound:.0f}: {'good' if error <= bound else 'BAD'}")
        good = good and error <= bound
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
