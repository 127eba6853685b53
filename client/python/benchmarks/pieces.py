"""One call with many channels, by the number of connections and by the size and number of pieces under way: CSV on stdout.

Best and median of the calls, and the client's processor seconds of one. The first row is the client's defaults. Capacities
at one SNR: nearly all bytes go to the server. A difference from NumPy's ends the program with status 1.

    python client/python/benchmarks/pieces.py 127.0.0.1:50051
"""

import argparse
import csv
import itertools
import statistics
import sys
import time

import numpy as np

import svdserve
from outputs_against_numpy import channels, numpy_capacity

CHECKED = 1000  # channels that NumPy computes, too


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="host:port or unix:/path")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--connections", default="1,2,4,8")
    parser.add_argument("--piece-mib", default="1,2,4,8")
    parser.add_argument("--in-flight", default="4,8")
    args = parser.parse_args()
    h = channels(args.count, 4, 4)
    wanted = numpy_capacity(h[:CHECKED], [10.0])[:, 0]

    out = csv.writer(sys.stdout)
    out.writerow(["connections", "piece_mib", "in_flight", "best_ms", "median_ms", "client_cpu_ms"])
    good = True

    def row(name: tuple, **options: int) -> None:
        nonlocal good
        with svdserve.Client(args.address, **options) as client:
            client.capacity(h, snr_db=10.0)  # warm: connections, memory on both sides
            times, begin = [], time.process_time()
            for _ in range(args.repeats):
                start = time.perf_counter()
                answer = client.capacity(h, snr_db=10.0)
                times.append(1e3 * (time.perf_counter() - start))
            cpu = 1e3 * (time.process_time() - begin) / args.repeats
        good = good and np.allclose(answer[:CHECKED], wanted, rtol=1e-4)
        out.writerow([*name, f"{min(times):.1f}", f"{statistics.median(times):.1f}", f"{cpu:.1f}"])
        sys.stdout.flush()

    row(("default", "default", "default"))
    for n, mib, under_way in itertools.product(args.connections.split(","), args.piece_mib.split(","), args.in_flight.split(",")):
        row((n, mib, under_way), connections=int(n), piece_bytes=int(float(mib) * 2**20), max_in_flight=int(under_way))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
