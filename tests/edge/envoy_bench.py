"""The price of Envoy: rates and latencies through Envoy beside those of the server itself, in turns.

    build/release/tests/lint/tools/bin/python tests/edge/envoy_bench.py build/release/bin [--rounds 5] [--large-mib 1024]
    .. build/release/bin --server-cpus=0 --envoy-cpus=2,4 --client-cpus=6,8       # each on processors of its own

Client, Envoy and server share the machine. Medians of the rounds; a ratio is that of the medians. A matrix of --large-mib
goes through at the end, unless that is 0. Envoy has a thread for each processor of its own, else two.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import envoy_test as edge
import numpy as np
import proxy

# The options of svdctl bench.
LOADS = {
    "10 4x4 c64, one caller": ["--shape=4x4", "--count=10", "--concurrency=1"],
    "1000 4x4 c64, four callers": ["--shape=4x4", "--count=1000", "--concurrency=4"],
    "100 64x64 c64, four callers": ["--shape=64x64", "--count=100", "--concurrency=4"],
    "1000 4x4 c64, four streams": ["--shape=4x4", "--count=1000", "--stream", "--concurrency=4"],
}


def measure(address: str, load: list[str], args: argparse.Namespace) -> dict:
    command = [edge.BINARIES / "svdctl", "bench", *load, "--address", address, f"--duration={args.seconds}s",
               "--warmup=300ms", f"--connections={args.connections}", "--json"]
    done = subprocess.run(proxy.pinned(command, args.client_cpus), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def large(address: str, folder: pathlib.Path, mebibytes: int) -> None:
    """A tall matrix, of which each MiB is the same."""
    path = folder / "large.npy"
    block = np.random.default_rng(1).standard_normal((1024, 256)).astype(np.float32)
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (1024 * mebibytes, 256))
    for i in range(mebibytes):
        matrix[1024 * i:1024 * (i + 1)] = block
    matrix.flush()
    begin = time.monotonic()
    done = subprocess.run([edge.BINARIES / "svdctl", "values", path, "-o", folder / "values.npy", "--address", address],
                          capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        print(f"{mebibytes} MiB: FAILED: {done.stderr}")
        return
    wanted = np.linalg.svd(block.astype(np.float64), compute_uv=False) * np.sqrt(mebibytes)
    error = np.max(np.abs(np.load(folder / "values.npy").ravel() - wanted)) / wanted[0]
    print(f"{mebibytes} MiB matrix: {seconds:.1f} s, largest error of a value {error:.1e} of the largest value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--connections", type=int, default=1, help="of the client")
    parser.add_argument("--large-mib", type=int, default=1024)
    for process in ("server", "envoy", "client"):
        parser.add_argument(f"--{process}-cpus", default="", help="processors, such as 0,2; by default all")
    args = parser.parse_args()
    edge.BINARIES = args.binaries.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        replica = edge.Replica(folder / "replica", "--access-log=0", cpus=args.server_cpus)
        envoy = proxy.Envoy(proxy.load_profile(folder, [replica.address], False), folder,
                            args.envoy_cpus.count(",") + 1 if args.envoy_cpus else 2, args.envoy_cpus)
        try:
            envoy.wait_for_replicas(1)
            through = "%s:%d" % envoy.address
            for load, words in LOADS.items():
                reports = [(measure(replica.address, words, args), measure(through, words, args)) for _ in range(args.rounds)]
                direct, over = ([r[i]["matrices_per_s"] for r in reports] for i in (0, 1))
                p50 = [statistics.median(r[i]["p50_s"] for r in reports) * 1e3 for i in (0, 1)]
                p99 = [statistics.median(r[i]["p99_s"] for r in reports) * 1e3 for i in (0, 1)]
                print(f"{load:28} direct {statistics.median(direct):12,.0f}/s  Envoy {statistics.median(over):12,.0f}/s  ratio "
                      f"{statistics.median(over) / statistics.median(direct):.2f}  p50 {p50[0]:.2f}, {p50[1]:.2f} ms  p99 "
                      f"{p99[0]:.2f}, {p99[1]:.2f} ms", flush=True)
            if args.large_mib:
                large(through, folder, args.large_mib)
        finally:
            envoy.stop()
            replica.kill()


if __name__ == "__main__":
    sys.exit(main())
