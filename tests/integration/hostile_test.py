"""One client does its worst; another one, at another address, must not notice.

    python3 tests/integration/hostile_test.py build/release/bin/svdserve            # right or wrong, no times
    python3 tests/integration/hostile_test.py build/release/bin/svdserve --strict   # times too, on a quiet machine
    python3 tests/integration/hostile_test.py build/release/bin/svdserve --only slow_uploads

Each attack has a server of its own with a memory limit of 1 GiB. The attacker connects from 127.0.0.2, the honest client
from 127.0.0.1. During the attack every honest call must succeed. Resident memory stays below the limit plus 256 MiB, and
the number of threads below that at start plus 32. Afterwards, with the attacker still connected, all memory that its
requests held is free again. With --strict the honest client's 99th percentile is at most 100 ms and three times that of
a quiet server.

Python's own library is all that it needs: it speaks HTTP/2 by itself, because no client library sends such requests.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import repeat

LIMIT = 1 << 30
SPARE = 256 << 20
MORE_THREADS = 32
ATTACKER, HONEST = "127.0.0.2", "127.0.0.1"
DECOMPOSE = "/svdserve.v1.SvdService/Decompose"
STREAM = "/svdserve.v1.SvdService/DecomposeStream"
LARGE = "/svdserve.v1.SvdService/DecomposeLarge"
INFO = "/svdserve.v1.SvdService/GetServerInfo"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

# --- messages -----------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


ELEMENT_BYTES = {1: 4, 2: 8, 3: 8, 4: 16}


def batch(rows: int, cols: int, count: int, dtype: int) -> bytes:
    size = rows * cols * count * ELEMENT_BYTES[dtype]
    data = os.urandom(min(size, 4096)).replace(b"\x7f", b"\x3f").replace(b"\xff", b"\xbf")
    data = (data * (size // len(data) + 1))[:size]
    return (number(1, dtype) + number(2, 1) + number(3, rows) + number(4, cols) + number(5, count) + message(6, data))


def request(rows: int, cols: int, count: int, dtype: int = 3, options: bytes = b"") -> bytes:
    return message(1, batch(rows, cols, count, dtype)) + (message(2, options) if options else b"")


def framed(payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(payload)) + payload


# --- HTTP/2 -------------------------------------------------------------------------------------

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header_block(path: str, announced: int | None) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
              ("content-type", "application/grpc"), ("te", "trailers")]
    if announced is not None:
        fields.append(("svdserve-request-bytes", str(announced)))
    out = b""
    for name, value in fields:
        out += b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    return out


class Connection:
    """A connection that does what it is told: `window` is what the server may send on each stream."""

    def __init__(self, address: tuple[str, int], source: str, window: int = 1 << 24):
        self.socket = socket.create_connection(address, timeout=20, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_stream = 1
        self.received: dict[int, int] = {}  # bytes of data, by stream
        self.ended: set[int] = set()
        self.dead = False
        self.trailers = b""  # the last header block or farewell that came, not decoded
        self.buffer, self.out = b"", bytearray()
        self.send_window, self.stream_windows, self.initial_window = 65535, {}, 65535
        self.largest_frame = 16384
        self.size_update = b""  # of HPACK's table, which is empty here: due where the server makes its own smaller
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)) +
                  frame(WINDOW, 0, 0, struct.pack(">I", (1 << 30))))

    def send(self, data: bytes = b"") -> None:
        """All of it behind what waits already, reading what comes meanwhile, as long as the server takes it."""
        self.out += data
        self.socket.setblocking(False)
        give_up = time.monotonic() + 30
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while self.out and not self.dead and time.monotonic() < give_up:
                for _, events in selector.select(1):
                    if events & selectors.EVENT_READ:
                        self.read_some()
                    if events & selectors.EVENT_WRITE and not self.dead:
                        try:
                            del self.out[:self.socket.send(memoryview(self.out)[:1 << 20].tobytes())]
                        except BlockingIOError:
                            pass
                        except OSError as error:
                            self.dead = True
                            self.trailers += repr(error).encode()

    def read_some(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            self.trailers += repr(error).encode()
        if not data:
            self.dead = True
            return
        self.buffer += data
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + size:
                break
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            if kind in (HEADERS, GOAWAY):
                self.trailers = payload
            if kind == DATA:
                self.received[stream] = self.received.get(stream, 0) + size
                if size:
                    self.out += frame(WINDOW, 0, 0, struct.pack(">I", size))
            elif kind == SETTINGS and not flags & 1:
                for at in range(0, size - 5, 6):
                    key, value = struct.unpack_from(">HI", payload, at)
                    if key == 1:
                        self.size_update = b"\x20" if value < 4096 else b""
                    if key == 4:
                        self.initial_window = value
                    if key == 5:
                        self.largest_frame = min(value, 1 << 20)
                self.out += frame(SETTINGS, 1, 0)
            elif kind == PING and not flags & 1:
                self.out += frame(PING, 1, 0, payload)
            elif kind == WINDOW:
                more = int.from_bytes(payload, "big")
                if stream == 0:
                    self.send_window += more
                else:
                    self.stream_windows[stream] = self.stream_windows.get(stream, 0) + more
            if kind == RST or (kind in (DATA, HEADERS) and flags & 1):
                self.ended.add(stream)

    def read_for(self, seconds: float, done=lambda: False) -> None:
        end = time.monotonic() + seconds
        self.socket.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            while not self.dead and not done():
                left = end - time.monotonic()
                if left <= 0:
                    return
                if selector.select(left):
                    self.read_some()
                if self.out:
                    self.send()

    def open(self, path: str, end: bool = False, announced: int | None = None) -> int:
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        block, self.size_update = self.size_update + header_block(path, announced), b""
        self.send(frame(HEADERS, 4 | (1 if end else 0), stream, block))
        return stream

    def room(self, stream: int) -> int:
        """The bytes that the server's windows let out."""
        return min(self.send_window, self.initial_window + self.stream_windows.get(stream, 0))

    def write(self, stream: int, data: bytes, end: bool = False, patience: float = 20) -> int:
        """Sends within the server's windows; returns what it could send before its patience ended."""
        sent = 0
        give_up = time.monotonic() + patience
        while sent < len(data) and not self.dead and stream not in self.ended and time.monotonic() < give_up:
            room = min(self.room(stream), self.largest_frame)
            if room <= 0:
                self.read_for(0.05)
                continue
            part = data[sent:sent + room]
            sent += len(part)
            self.send_window -= len(part)
            self.stream_windows[stream] = self.stream_windows.get(stream, 0) - len(part)
            self.send(frame(DATA, 1 if end and sent == len(data) else 0, stream, part))
        return sent

    def call(self, path: str, payload: bytes, seconds: float = 20) -> bool:
        """One unary call; whether a reply came."""
        stream = self.open(path)
        self.write(stream, framed(payload), end=True)
        self.read_for(seconds, lambda: stream in self.ended)
        return self.received.get(stream, 0) > 0

    def close(self) -> None:
        self.socket.close()


# --- attacks ------------------------------------------------------------------------------------

Address = tuple[str, int]


def connections(address: Address, count: int, window: int = 1 << 24) -> list[Connection]:
    return [Connection(address, ATTACKER, window) for _ in range(count)]


def snr_times_groups(address: Address) -> list[Connection]:
    """A request of half a megabyte with a long list of SNRs and 4096 groups."""
    mine = connections(address, 2)
    mimo = number(1, 1) + message(7, b"\0" * 8 * 64000)
    payload = message(2, message(8, mimo)) + message(3, number(1, 1)) * 4096
    for c in mine:
        c.write(c.open(DECOMPOSE), framed(payload), end=True)
    return mine


def unread_replies(address: Address) -> list[Connection]:
    """Small requests for large replies, of which nothing is taken."""
    mine = connections(address, 4, window=0)
    payload = framed(request(640, 1, 1, dtype=1, options=number(4, 3)))
    for c in mine:
        for _ in range(200):
            c.write(c.open(DECOMPOSE), payload, end=True)
    return mine


def idle_streams(address: Address) -> list[Connection]:
    """As many streams as the server lets one client open, without a request."""
    mine = connections(address, 17)
    for c in mine:
        for _ in range(256):
            c.open(STREAM)
    return mine


def watches(address: Address) -> list[Connection]:
    mine = connections(address, 20)
    for c in mine:
        for _ in range(200):
            c.write(c.open(WATCH), framed(b""), end=True)
    return mine


def large_open(rows: int, cols: int) -> bytes:
    return framed(message(1, number(1, 2) + number(2, 1) + number(3, rows) + number(4, cols)))


def large_places(address: Address) -> list[Connection]:
    """Large matrices that are opened and never sent, small ones and a huge one."""
    mine = connections(address, 2)
    for _ in range(32):
        c = mine[0]
        c.write(c.open(LARGE), large_open(200, 200))
    mine[1].write(mine[1].open(LARGE), large_open(9000, 9000))
    return mine


def slow_uploads(address: Address) -> list[Connection]:
    """A byte now and then keeps nothing. Its CRC-32C is known: that of one zero byte."""
    mine = connections(address, 1)
    streams = [mine[0].open(LARGE) for _ in range(12)]
    for s in streams:
        mine[0].write(s, large_open(200, 200))
    mine[0].read_for(0.5)
    for offset in range(6):
        chunk = number(1, offset) + message(2, b"\0") + varint(3 << 3 | 5) + struct.pack("<I", 0x527D5351)
        for s in streams:
            mine[0].write(s, framed(message(2, chunk)))
        mine[0].read_for(0.3)
    return mine


def reflection_streams(address: Address) -> list[Connection]:
    mine = connections(address, 4)
    for c in mine:
        for _ in range(250):
            c.open(REFLECTION)
    return mine


def unknown_fields(address: Address) -> list[Connection]:
    """Fields that no version knows, which a parser might keep."""
    mine = connections(address, 2)
    junk = varint(1000 << 3) + b"\1"
    mine[0].write(mine[0].open(DECOMPOSE), framed(message(2, junk * (12 << 20 >> 2))), end=True)
    mine[1].write(mine[1].open(INFO), framed(junk * (24 << 20 >> 2)), end=True, patience=5)
    return mine


def calls_without_a_message(address: Address) -> list[Connection]:
    mine = connections(address, 4)
    for c in mine:
        for _ in range(150):
            c.open(DECOMPOSE)
    return mine


def half_sent_messages(address: Address) -> list[Connection]:
    """Messages of 60 MiB, of which a part comes."""
    mine = connections(address, 24)
    part = b"\0" + struct.pack(">I", 60 << 20) + b"\x0a" + varint((60 << 20) - 6) + b"\0" * (1 << 20)
    for c in mine:
        for _ in range(4):
            c.write(c.open(DECOMPOSE), part, patience=0.2)
    return mine


def half_sent(address: Address, path: str) -> list[Connection]:
    """Messages of 60 MiB without their last bytes, on 96 calls at once: all that the server takes of them in 8 s."""
    mine = connections(address, 24)
    begin, part = b"\0" + struct.pack(">I", 60 << 20), b"\0" * (1 << 20)
    left = {(c, c.open(path)): 59 for c in mine for _ in range(4)}
    for c, stream in left:
        c.write(stream, begin, patience=0.1)
    end = time.monotonic() + 8
    while left and time.monotonic() < end:
        for c, stream in list(left):
            if c.dead or stream in c.ended or left[c, stream] == 0:
                del left[c, stream]
            elif c.room(stream) >= len(part):
                c.write(stream, part)
                left[c, stream] -= 1
        for c in mine:
            c.read_for(0.001)
    return mine


def half_sent_info(address: Address) -> list[Connection]:
    return half_sent(address, INFO)


def half_sent_checks(address: Address) -> list[Connection]:
    return half_sent(address, CHECK)


def half_sent_watches(address: Address) -> list[Connection]:
    return half_sent(address, WATCH)


def half_sent_questions(address: Address) -> list[Connection]:
    """They go to reflection."""
    return half_sent(address, REFLECTION)


def half_sent_streams(address: Address) -> list[Connection]:
    return half_sent(address, STREAM)


def half_sent_chunks(address: Address) -> list[Connection]:
    return half_sent(address, LARGE)


def more_than_announced(address: Address) -> list[Connection]:
    """Calls that announce nothing to speak of, and send far more."""
    mine = connections(address, 4)
    payload = framed(request(64, 64, 1500))
    for c in mine:
        for _ in range(40):
            c.open(DECOMPOSE, announced=1)
        c.write(c.open(DECOMPOSE, announced=1), payload, end=True, patience=2)
        c.write(1, payload, end=True, patience=2)
    return mine


def idle_connections(address: Address) -> list[Connection]:
    mine = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            mine += connections(address, 1)
    return mine


def expensive_requests(address: Address) -> list[Connection]:
    """Four requests of 8 MiB, each of which keeps a core busy for long."""
    mine = connections(address, 4)
    options = number(1, 4) + varint(2 << 3 | 1) + struct.pack("<d", 1e-300) + number(3, 1000) + number(4, 2)
    payload = framed(request(128, 128, 32, dtype=4, options=options))
    for c in mine:
        c.write(c.open(DECOMPOSE), payload, end=True)
    return mine


ATTACKS = [snr_times_groups, unread_replies, idle_streams, watches, large_places, slow_uploads, reflection_streams,
           unknown_fields, calls_without_a_message, half_sent_messages, half_sent_info, half_sent_checks, half_sent_watches,
           half_sent_questions, half_sent_streams, half_sent_chunks, more_than_announced, idle_connections, expensive_requests]

# --- the server and the honest client -----------------------------------------------------------


class Server:
    def __init__(self, program: str, folder: pathlib.Path):
        ready = folder / "ready"
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", f"--ready-file={ready}",
                 f"--max-inflight-bytes={LIMIT}", "--stream-idle-timeout=4s", "--large-idle-timeout=4s",
                 "--max-connections=200", "--drain-delay=0s", "--drain-timeout=1s"],
                stdout=log, stderr=subprocess.STDOUT)
        give_up = time.monotonic() + 60
        while not ready.exists():
            assert self.process.poll() is None and time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.02)
        lines = dict(line.split("=", 1) for line in ready.read_text().splitlines())
        host, port = lines["grpc"].rsplit(":", 1)
        self.address, self.http = (host, int(port)), lines["metrics"]

    def status(self, key: str) -> int:
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        raise KeyError(key)

    def peak_rss(self) -> int:
        return self.status("VmHWM") * 1024

    def metric(self, name: str) -> float:
        text = urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(60) == 0, self.log.read_text()
        finally:
            self.process.kill()


HONEST_REQUEST = request(4, 4, 10)


def honest_calls(server: Server, count: int, watch=lambda: None) -> list[float]:
    """The seconds that calls took, 20 ms apart. A call without a reply is a failure."""
    client = Connection(server.address, HONEST)
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        assert client.call(DECOMPOSE, HONEST_REQUEST), (
            f"an honest call got no reply after {time.perf_counter() - begin:.1f} s: dead {client.dead}, "
            f"trailers {client.trailers!r}")
        seconds.append(time.perf_counter() - begin)
        watch()
        time.sleep(0.02)
    client.close()
    return seconds


def percentile(seconds: list[float], p: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(p * len(seconds)))]


def free_again(server: Server, seconds: float = 65) -> bool:
    names = ("svdserve_inflight_bytes", "svdserve_inflight_factor_bytes")
    end = time.monotonic() + seconds
    while any(server.metric(name) for name in names):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def attempt(attack, program: str, strict: bool) -> list[str]:
    """Runs the attack against a server of its own; returns a sentence for each bar that was missed."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, pathlib.Path(folder))
        try:
            quiet = honest_calls(server, 50 if strict else 5)
            threads = server.status("Threads")
            peak = {"threads": threads, "rss": server.peak_rss()}

            def watch() -> None:
                peak["threads"] = max(peak["threads"], server.status("Threads"))
                peak["rss"] = server.peak_rss()

            mine = attack(server.address)
            watch()
            busy = honest_calls(server, 100 if strict else 15, watch)
            if not free_again(server):
                wrong.append("the attacker's requests still hold memory")
            for c in mine:
                c.close()
            p99, quiet99 = percentile(busy, 0.99), percentile(quiet, 0.99)
            print(f"{attack.__name__:24} p50 {percentile(busy, 0.5) * 1e3:7.1f} ms  p99 {p99 * 1e3:7.1f} ms  quiet p99 "
                  f"{quiet99 * 1e3:5.1f} ms  RSS {peak['rss'] >> 20:5} MiB  threads {threads} .. {peak['threads']}", flush=True)
            if peak["rss"] > LIMIT + SPARE:
                wrong.append(f"resident memory reached {peak['rss'] >> 20} MiB")
            if peak["threads"] > threads + MORE_THREADS:
                wrong.append(f"{peak['threads']} threads")
            if strict and p99 > 0.1 + 3 * quiet99:
                wrong.append(f"p99 {p99:.3f} s")
        except AssertionError as error:
            wrong.append(str(error))
        finally:
            server.stop()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", help="the server")
    parser.add_argument("--strict", action="store_true", help="check times, too: for a quiet machine")
    parser.add_argument("--only", choices=[a.__name__ for a in ATTACKS])
    args = parser.parse_args()
    attacks = [a for a in ATTACKS if args.only in (None, a.__name__)]
    failed = 0
    # An attack waits most of its time. Where times count, nothing runs beside it.
    with concurrent.futures.ProcessPoolExecutor(1 if args.strict else 3) as pool:
        for attack, wrong in zip(attacks, pool.map(attempt, attacks, repeat(args.program), repeat(args.strict))):
            failed += len(wrong)
            for text in wrong:
                print(f"{attack.__name__}: {text}")
    print(f"{failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
