"""A connection that the server closes as idle just as a call comes: the call never reached it, and goes again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import svdserve

HEADERS, GOAWAY, INTERNAL_ERROR = 1, 7, 2  # types of frames of HTTP/2, and the error that gRPC gives as its reason
PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


class IdleProxy:
    """Relays connections to a server. The `nth` call finds its connection closed, as gRPC's servers close idle ones."""

    def __init__(self, address: str, nth: int) -> None:
        self._server = address.rpartition(":")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listening.getsockname()[1]
        self.closed = False
        self._nth, self._begun = nth, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # of the end
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection((self._server[0], int(self._server[2])))
                sending = threading.Lock()  # to the client, a frame at a time
                threading.Thread(target=self._to_client, args=(server, client, sending), daemon=True).start()
                threading.Thread(target=self._to_server, args=(client, server, sending), daemon=True).start()

    def _to_client(self, server: socket.socket, client: socket.socket, sending: threading.Lock) -> None:
        with contextlib.suppress(OSError), server.makefile("rb") as frames:
            while head := frames.read(9):
                with sending:
                    client.sendall(head + frames.read(length_of(head)))
        end(client, server)

    def _to_server(self, client: socket.socket, server: socket.socket, sending: threading.Lock) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as frames:
            server.sendall(frames.read(PREFACE))
            while head := frames.read(9):
                self._begun += head[3] == HEADERS
                if self._begun == self._nth and not self.closed:
                    self.closed = True
                    last = max(0, int.from_bytes(head[5:9], "big") - 2)  # stream that the server has taken
                    goaway = struct.pack(">II", last, INTERNAL_ERROR) + b"enter idle"
                    with sending:
                        client.sendall(len(goaway).to_bytes(3, "big") + bytes([GOAWAY, 0, 0, 0, 0, 0]) + goaway)
                    break
                server.sendall(head + frames.read(length_of(head)))
        end(client, server)


def length_of(head: bytes) -> int:
    """Bytes of a frame after its head."""
    return int.from_bytes(head[:3], "big")


def end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):  # the other direction ended it
            one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture(params=[1, 2])
def proxy(request, address):
    proxy = IdleProxy(address, request.param)
    yield proxy
    proxy.close()
    assert proxy.closed


SMALL, LARGE = np.eye(4), np.random.default_rng(3).standard_normal((300, 200))


def blocking(address, a):
    with svdserve.Client(address) as client:
        for _ in range(2):
            values = client.svd(a, False, timeout=60, **options_of(a))[1]
    return values


def with_asyncio(address, a):
    async def call():
        async with svdserve.AsyncClient(address) as client:
            for _ in range(2):
                values = (await client.svd(a, False, timeout=60, **options_of(a)))[1]
        return values

    return asyncio.run(call())


def by_svdctl(address, a):
    program = Path(os.environ["SVDSERVE_BUILD_DIR"], "bin", "svdctl")
    rows = "\n".join(",".join(map(repr, row)) for row in a.tolist())
    command = [program, "svd", "-", "--format=csv", "--s=-", f"--address={address}", "--timeout=60s"]
    done = subprocess.run(command, input=rows.encode(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout[-8 * min(a.shape):])


def options_of(a):
    return {} if a is SMALL else {"pivot_strategy": "round_robin"}  # which is of large matrices


@pytest.mark.parametrize("a", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("values_by", [blocking, with_asyncio, by_svdctl])
def test_a_call_that_finds_its_connection_closed_goes_again(proxy, values_by, a):
    np.testing.assert_allclose(values_by(proxy.address, a), np.linalg.svd(a, compute_uv=False), rtol=1e-12)
