"""Real servers that a test stops, kills and replaces, and a name server for them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

SECONDS = 120  # for what is broken: a machine may be busy


def wait_until(holds: Callable[[], bool]) -> bool:
    """Whether it holds before the time is over."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return holds()
        time.sleep(0.01)
    return True


class Replica:
    """A server of one thread. Its files lie in `folder`."""

    def __init__(self, folder: Path, *flags: str, listen: str) -> None:
        folder.mkdir(parents=True)
        ready = folder / "ready"
        self._log = folder / "log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [Path(os.environ["SVDSERVE_BUILD_DIR"], "bin", "svdserve"), f"--listen={listen}", "--devices=host",
                 "--threads=1", "--calibration-time=1ms", "--metrics-listen=127.0.0.1:0", "--metrics-max-age=0s",
                 f"--ready-file={ready}", *flags], stdout=log, stderr=subprocess.STDOUT)
        assert wait_until(lambda: ready.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self._log.read_text()
        lines = dict(line.split("=", 1) for line in ready.read_text().splitlines())
        self.address, self._metrics = lines["grpc"], lines["metrics"]

    def requests(self, status: str = "") -> float:
        """Calls with matrices that it has answered, with the status."""
        return self._sum("svdserve_requests_total{", lambda line: "GetServerInfo" not in line and status in line)

    def has_a_large_matrix(self) -> bool:
        """Now."""
        return self._sum("svdserve_inflight_factor_bytes", lambda line: True) > 0

    def metric(self, name: str) -> float:
        """The value of a series without labels."""
        return self._sum(name + " ", lambda line: True)

    def _sum(self, name: str, counts: Callable[[str], bool]) -> float:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=SECONDS) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and counts(line))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """As Kubernetes does."""
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0, self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class HeldPort:
    """A port that the servers of a test share, one after the other, and that no other process is given meanwhile.

    Its sockets are bound and do not listen. They and the server's have SO_REUSEADDR: the server may bind the port, too. The
    kernel gives it neither to programs that ask for any port nor to outgoing connections.
    """

    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts
        self._sockets: list[socket.socket] = []
        while not self._hold():
            self.release()

    def address(self, host: int = 0) -> str:
        """Where a server may listen, at the host of this number."""
        return f"{self._hosts[host]}:{self.port}"

    def release(self) -> None:
        """Gives the port back."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def _hold(self) -> bool:
        """Whether the port that the first host was given is free at all others."""
        self.port = 0
        for host in self._hosts:
            held = socket.socket()
            self._sockets.append(held)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((host, self.port))
            except OSError:
                return False
            self.port = held.getsockname()[1]
        return True


class Fleet:
    """Servers that are killed at the end of a test. Their ports are held: another one may start where one has listened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: list[HeldPort] = []
        self.replicas: list[Replica] = []

    def hold(self, *hosts: str) -> HeldPort:
        """A port until the end of the test."""
        self._ports.append(HeldPort(*hosts))
        return self._ports[-1]

    def start(self, *flags: str, listen: str | None = None) -> Replica:
        """A server at `listen`, which must be held; None: at a port of its own."""
        replica = Replica(self._folder / str(len(self.replicas)), *flags, listen=listen or self.hold("127.0.0.1").address())
        self.replicas.append(replica)
        return replica

    def end(self) -> None:
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()
        for port in self._ports:
            port.release()


class NameServer:
    """Answers each question for IPv4 addresses with those of `addresses`, and others with none."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.questions = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # of the end
            while True:
                query, client = self._socket.recvfrom(512)
                self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        end = query.index(b"\0", 12) + 5  # of the question: the name, its type and class
        is_ipv4 = query[end - 4:end - 2] == b"\0\1"
        self.questions += is_ipv4
        found = self.addresses if is_ipv4 else []
        head = query[:2] + struct.pack(">HHHHH", 0x8580, 1, len(found), 0, 0)
        return head + query[12:end] + b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) for address in found)


@contextlib.contextmanager
def name_server() -> Iterator[NameServer]:
    server = NameServer()
    try:
        yield server
    finally:
        server.close()
