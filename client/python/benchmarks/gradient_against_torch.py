"""One gradient step of the capacity of many channels: a svdserve server against torch alone on this machine's CPU. CSV.

A step is the mean capacity of all channels at one SNR, and its gradient with respect to each. Torch has log2 det(I + snr / n
H H^H) by slogdet, the usual form, with all cores; svdserve.torch asks the server, which has the same cores. Both take turns.
Numbers are medians: milliseconds of a step, then processor seconds of this process and of the server in milliseconds. The
values and gradients of both are compared first: a difference beyond rounding ends the program with status 1.

    python client/python/benchmarks/gradient_against_torch.py 127.0.0.1:50051 --server-pid $!
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import svdserve
import svdserve.torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128}
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def slogdet(h: torch.Tensor, snr_db: float) -> torch.Tensor:
    """Capacities by torch alone."""
    snr = 10 ** (snr_db / 10)
    identity = torch.eye(h.shape[-2], dtype=h.dtype)
    return torch.linalg.slogdet(identity + snr / h.shape[-1] * h @ h.mH).logabsdet / math.log(2)


def by_svdvals(h: torch.Tensor, snr_db: float) -> torch.Tensor:
    """Capacities by torch's singular values."""
    snr = 10 ** (snr_db / 10)
    return torch.log2(1 + snr / h.shape[-1] * torch.linalg.svdvals(h) ** 2).sum(-1)


def processor_ms(pid: int | None) -> float:
    """Milliseconds that a process has computed so far; NaN if it is not known."""
    if pid is None:
        return math.nan
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_MS


def step(function: Callable[[torch.Tensor], torch.Tensor], h: torch.Tensor, pid: int | None) -> tuple[list[float], Any]:
    """Milliseconds, those of this process and of the server; then the mean and the gradient."""
    x = h.clone().requires_grad_()
    before = time.perf_counter(), time.process_time(), processor_ms(pid)
    mean = function(x).mean()
    mean.backward()
    after = time.perf_counter(), time.process_time(), processor_ms(pid)
    return [(b - a) * unit for a, b, unit in zip(before, after, (1e3, 1e3, 1))], (mean.detach(), x.grad)


def agree(ours: Any, theirs: Any) -> bool:
    """Up to rounding."""
    bound = 200 * torch.finfo(ours[0].dtype).eps
    return all(bool((a - b).norm() <= bound * b.norm()) for a, b in zip(ours, theirs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="of the server: host:port or unix:/path")
    parser.add_argument("--server-pid", type=int, help="for its processor time")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--shape", default="4x4", metavar="MxN")
    parser.add_argument("--dtype", choices=DTYPES, default="c64")
    parser.add_argument("--snr-db", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--svdvals", action="store_true", help="also torch.linalg.svdvals, which takes seconds")
    args = parser.parse_args()

    rows, cols = (int(n) for n in args.shape.split("x"))
    h = torch.randn(args.count, rows, cols, dtype=DTYPES[args.dtype], generator=torch.Generator().manual_seed(1))
    with svdserve.Client(args.address) as client:
        ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "svdserve": lambda x: svdserve.torch.capacity(x, args.snr_db, client=client),
            "torch slogdet": lambda x: slogdet(x, args.snr_db)}
        if args.svdvals:
            ways["torch svdvals"] = lambda x: by_svdvals(x, args.snr_db)
        results = {name: step(way, h, None)[1] for name, way in ways.items()}  # warm, too
        if not all(agree(results["svdserve"], result) for result in results.values()):
            print("gradient_against_torch: the results differ by more than rounding", file=sys.stderr)
            return 1
        times: dict[str, list[list[float]]] = {name: [] for name in ways}
        for _ in range(args.repeats):
            for name, way in ways.items():
                times[name].append(step(way, h, args.server_pid)[0])

    medians = {name: [statistics.median(each) for each in zip(*rounds)] for name, rounds in times.items()}
    # The clock of a server's processor time is coarse: its mean says more than its median.
    for name, rounds in times.items():
        medians[name][2] = statistics.fmean(each[2] for each in rounds)
    ratios = {name: statistics.median(them[0] / us[0] for us, them in zip(times["svdserve"], rounds))
              for name, rounds in times.items()}
    out = csv.writer(sys.stdout)
    out.writerow(["way", "shape", "dtype", "count", "step_ms", "fastest_ms", "process_cpu_ms", "server_cpu_ms",
                  "times_svdserve", "load", "torch_version"])
    for name, (wall, cpu, server) in medians.items():
        out.writerow([name, args.shape, args.dtype, args.count, f"{wall:.1f}", f"{min(x[0] for x in times[name]):.1f}",
                      f"{cpu:.1f}", f"{server:.1f}", f"{ratios[name]:.2f}", f"{os.getloadavg()[0]:.1f}", torch.__version__])
    return 0


if __name__ == "__main__":
    sys.exit(main())
