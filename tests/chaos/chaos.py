#!/usr/bin/env python3
"""A server under mixed load, whose clients are killed, stopped and cut off, and whose clock jumps.

    python3 tests/chaos/chaos.py build/release/bin --minutes=120                # a soak; prints a line for each cycle
    python3 tests/chaos/chaos.py build/release/bin --minutes=2 --leak=memory    # a seeded leak: the exit status is 1

After each cycle the server is quiet: then its ledgers are empty, and its descriptors and threads are those of the first
cycles. Memory must not rise, by malloc's books nor resident, by more than 1 MiB an hour; in a short run it may waver. Every
answer that is checked must be right, and an honest client's calls succeed after each cycle.

The server runs with preload.c, which only a build with tests has: --leak has it leak. --big adds an input above 2 GiB, from a sparse file.
Exit status: 0 all is well, 1 something leaks or fails, 77 not a long run (with --long-only).
"""
import argparse
import array
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from proxy import Proxy

QUIET = ("svdserve_inflight_requests", "svdserve_inflight_bytes", "svdserve_waiting_requests", "svdserve_open_streams",
         "svdserve_inflight_factors", "svdserve_inflight_factor_bytes", "svdserve_waiting_factors",
         "svdserve_queued_requests")
WARM_CYCLES = 3
# Resident memory wavers by the ends of malloc's arenas, which it does not give back. Its own books waver less, but rise in
# the first minutes, until every cache is full.
IN_USE_NOISE, RESIDENT_NOISE = 3 << 19, 32 << 20
IDLE_SECONDS = 4  # after which the server closes a connection
MIB = 1 << 20
# Seconds by which the wall clock is off.
JUMPS = (0, 3600, -7200, 86400 * 40, 0)


@dataclasses.dataclass(frozen=True)
class Usage:
    """The resources of a process, whose heap was trimmed."""

    resident: int  # bytes
    in_use: int  # bytes that malloc has given out
    descriptors: int
    threads: int


class Failure(Exception):
    """Something that must not happen."""


def write_npy(path, rows, cols, numbers=None):
    """A file of float64; without numbers it is sparse, and holds zeros."""
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, cols)
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode())
        if numbers is None:
            file.truncate(file.tell() + 8 * rows * cols)
        else:
            array.array("d", numbers).tofile(file)
    return str(path)


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<H", data, 8)
    return array.array("d", data[10 + length:])


def slope(samples):
    """Theil and Sen's: the median of the slopes between all pairs of (time, value)."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(samples) for b in samples[i + 1:] if b[0] > a[0]]
    return statistics.median(slopes) if slopes else 0.0


def find_faketime():
    found = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return str(found[0]) if found else None


class Server:
    def __init__(self, bin_folder, folder, leak, faketime):
        self._clock = folder / "clock"
        self.set_clock(0)
        self._trim = folder / "trim"
        env = dict(os.environ, SVDSERVE_TEST_LEAK=leak or "", SVDSERVE_TEST_TRIM=str(self._trim))
        preload = [str(bin_folder / "libsvdserve_chaos.so")]
        if faketime:
            preload.append(faketime)
            env.update(FAKETIME_TIMESTAMP_FILE=str(self._clock), FAKETIME_CACHE_DURATION="1",
                       FAKETIME_DONT_FAKE_MONOTONIC="1", DONT_FAKE_MONOTONIC="1")
        env["LD_PRELOAD"] = ":".join(preload)
        ready = folder / "ready"
        self._log = open(folder / "log", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [bin_folder / "svdserve", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", f"--ready-file={ready}",
             "--devices=host", "--max-inflight-bytes=256MiB", "--max-large-bytes=8GiB", "--stream-idle-timeout=3s",
             "--large-idle-timeout=3s", f"--max-connection-idle={IDLE_SECONDS}s", "--metrics-max-age=0s"],
            env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + 60
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure("the server does not start: " + self.log())
            time.sleep(0.05)
        lines = dict(line.split("=", 1) for line in ready.read_text().split())
        self.address, self.metrics_address = lines["grpc"], lines["metrics"]

    def set_clock(self, offset):
        text = "%+d" % offset
        self._clock.with_suffix(".new").write_text(text + "\n")
        os.replace(self._clock.with_suffix(".new"), self._clock)

    def log(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def metrics(self):
        """The sum of each metric over its labels."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        sums = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{", 1)[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def usage(self):
        self._trim.touch()
        deadline = time.monotonic() + 30
        while self._trim.exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise Failure("the server does not trim its heap: " + self.log())
            time.sleep(0.02)
        process = pathlib.Path("/proc", str(self.process.pid))
        fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        in_use = int(self._trim.with_suffix(".bytes").read_text())
        return Usage(int(fields["VmRSS"].split()[0]) * 1024, in_use, len(os.listdir(process / "fd")), int(fields["Threads"]))

    def wait_until_quiet(self, most_descriptors, seconds=60):
        """Returns usage() once the ledgers are empty, memory no longer falls, and idle connections are closed."""
        begin, last = time.monotonic(), None
        while True:
            if self.process.poll() is not None:
                raise Failure("the server died: " + self.log())
            held = {name: value for name, value in self.metrics().items() if name in QUIET and value != 0}
            usage = self.usage()
            settled = last is not None and abs(usage.in_use - last.in_use) < 64 * 1024 and usage.descriptors <= most_descriptors
            waited = time.monotonic() - begin
            if not held and (settled or waited > 3 * IDLE_SECONDS):
                return usage
            if held and waited > seconds:
                raise Failure(f"ledgers are not empty after {seconds} s without load: {held}")
            last = usage
            time.sleep(0.5)

    def stop(self):
        self.set_clock(0)
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the server does not stop") from None


class Chaos:
    def __init__(self, args, folder, server, proxy):
        self._svdctl = args.bin / "svdctl"
        self._folder = folder
        self._server = server
        self._proxy = proxy
        self._random = random.Random(args.seed)
        self._seconds = args.cycle_seconds
        self._diagonal = write_npy(folder / "diagonal.npy", 3, 3, [3, 0, 0, 0, 2, 0, 0, 0, 1])
        numbers = [self._random.gauss(0, 1) for _ in range(700 * 700)]
        self._large = write_npy(folder / "large.npy", 700, 700, numbers)

    def start(self, *command, address=None):
        return subprocess.Popen([self._svdctl, *command, f"--address={address or self._server.address}", "--quiet"],
                                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def _load(self, *options):
        return ("bench", f"--duration={self._seconds}s", "--warmup=0s", "--retry", *options)

    def mixed(self):
        """Loads that go on beside each other."""
        return [self.start(*self._load("--shape=4x4:8,8x8:4,64x16", "--count=200", "--concurrency=3")),
                self.start(*self._load("--stream", "--shape=8x4", "--count=50", "--concurrency=2", "--connections=2")),
                self.start(*self._load("--problem=eigh", "--shape=6x6", "--count=20", "--concurrency=1")),
                self.start("svd", self._large, "-o", "of_large"),
                self.start(*self._load("--shape=8x8", "--count=500", "--concurrency=2"), address=self._proxy.address),
                self.start("svd", self._large, "-o", "of_proxy", address=self._proxy.address)]

    def victim(self):
        """A client to be ended before it is done."""
        return self.start(*self._random.choice([
            ("svd", self._large, "-o", "of_victim"), self._load("--stream", "--shape=16x16", "--count=100"),
            self._load("--shape=32x32", "--count=300")]))

    def cycle(self, number):
        self._proxy.reset(("delay", "break", "half_open")[number % 3])
        self._server.set_clock(JUMPS[number % len(JUMPS)])
        running, stopped = self.mixed(), []
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            victim = self.victim()
            time.sleep(self._random.uniform(0.05, 0.6))
            how = self._random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGSTOP])
            victim.send_signal(how)
            if how == signal.SIGSTOP and len(stopped) < 4:
                stopped.append(victim)
            else:
                victim.kill()
                victim.wait()
        if number % 4 == 3:
            self._server.process.send_signal(signal.SIGSTOP)
            time.sleep(1)
            self._server.process.send_signal(signal.SIGCONT)
        self._end(running, stopped)

    def _end(self, running, stopped):
        for process in running:  # those behind a half-open connection have no other end
            try:
                process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        time.sleep(1 if stopped else 0)  # the server may end their calls by itself
        for process in stopped:
            process.kill()
            process.wait()
        self._proxy.reset("delay")

    def check(self):
        """An honest client: right values, and calls that succeed."""
        honest = subprocess.run([self._svdctl, "values", self._diagonal, "-o", "values.npy", "--timeout=20s",
                                 f"--address={self._server.address}"], cwd=self._folder, capture_output=True, text=True)
        if honest.returncode != 0:
            raise Failure(f"an honest call fails: {honest.stderr}The server's exit status is {self._server.process.poll()}, "
                          "and its log ends so: " + self._server.log())
        if max(abs(a - b) for a, b in zip(read_npy(self._folder / "values.npy"), (3, 2, 1), strict=True)) > 1e-12:
            raise Failure("values are wrong")

    def big(self):
        """More than 2^31 bytes: 1048576 x 257 zeros."""
        path = write_npy(self._folder / "big.npy", 1 << 20, 257)
        if os.stat(path).st_size <= 1 << 31:
            raise Failure("the big file is not big")
        done = subprocess.run([self._svdctl, "values", path, "-o", "zeros.npy", f"--address={self._server.address}"],
                              cwd=self._folder, capture_output=True, text=True)
        os.unlink(path)
        if done.returncode != 0:
            raise Failure("the big matrix fails: " + done.stderr)
        if any(read_npy(self._folder / "zeros.npy")):
            raise Failure("a zero matrix has values")


def judge(samples, hours):
    """Why the samples of (seconds, usage) show a leak; None: they do not."""
    warm, rest = samples[:WARM_CYCLES], samples[WARM_CYCLES:]
    if len(rest) < 3:
        raise Failure("the run is too short to judge")
    for name in ("descriptors", "threads"):
        base = max(getattr(usage, name) for _, usage in warm)
        if min(getattr(usage, name) for _, usage in rest[-2:]) > base + 2:
            return f"{name}: {getattr(rest[-1][1], name)}, but {base} at first"
    found = None
    for name, noise in (("in_use", IN_USE_NOISE), ("resident", RESIDENT_NOISE if hours < 1 else 0)):
        rise = slope([(at, getattr(usage, name)) for at, usage in rest]) * (rest[-1][0] - rest[0][0])
        allowed = max(MIB * hours, noise)
        print(f"memory {name} rises by {rise / MIB:.2f} MiB in {hours:.3f} h, {allowed / MIB:.2f} MiB are allowed")
        if rise > allowed:
            found = f"memory {name} rises by {rise / MIB:.2f} MiB"
    return found


def soak(args, folder):
    faketime = None if args.no_clock else find_faketime()
    if not args.no_clock and not faketime:
        raise Failure("libfaketime is missing: deploy/bootstrap.sh installs it")
    server = Server(args.bin, folder, args.leak, faketime)
    proxy = Proxy(int(server.address.rsplit(":", 1)[1]), args.seed)
    try:
        chaos = Chaos(args, folder, server, proxy)
        begin, samples = time.monotonic(), []
        most_descriptors = server.usage().descriptors
        if args.big:
            chaos.big()
            print("an input above 2 GiB passed", flush=True)
        number = 0
        while time.monotonic() < begin + 60 * args.minutes or len(samples) < WARM_CYCLES + 3:
            chaos.cycle(number)
            chaos.check()
            usage = server.wait_until_quiet(most_descriptors)
            samples.append((time.monotonic(), usage))
            print(f"cycle {number:4}, {time.monotonic() - begin:7.0f} s: {usage.resident / MIB:8.2f} MiB resident, "
                  f"{usage.in_use / MIB:7.2f} in use, {usage.descriptors} descriptors, {usage.threads} threads", flush=True)
            number += 1
        hours = (samples[-1][0] - samples[WARM_CYCLES][0]) / 3600
        leak = judge(samples, hours)
        requests = server.metrics()["svdserve_admitted_requests_total"]
        status = server.stop()
        if status != 0:
            raise Failure(f"the server ends with status {status}: " + server.log())
        print(f"{number} cycles, {requests:.0f} requests admitted")
        if leak:
            raise Failure(leak)
    finally:
        proxy.stop()
        if server.process.poll() is None:
            server.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="the folder of svdserve and svdctl")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--cycle-seconds", type=int, default=5, help="of load in a cycle")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leak", choices=("memory", "descriptors", "threads"))
    parser.add_argument("--expect-leak", action="store_true", help="exit with 0 if the leak is found, and only then")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--no-clock", action="store_true", help="without jumps of the clock")
    parser.add_argument("--long-only", action="store_true", help="exit with 77 unless SVDSERVE_TEST_SIZE=long")
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    if args.long_only and os.environ.get("SVDSERVE_TEST_SIZE") != "long":
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="svdserve-chaos-"))
    failure = None
    try:
        soak(args, folder)
    except Failure as error:
        failure = str(error)
        print(f"FAILED: {failure}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.expect_leak:
        return 0 if failure and args.leak and failure.startswith(args.leak) else 1
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
