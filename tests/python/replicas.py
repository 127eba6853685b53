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

    def __init__(self, folder: Path, *flags: str, listen: str = "127.0.0.1:0") -> None:
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


class Fleet:
    """Servers that are killed at the end of a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.replicas: list[Replica] = []

    def start(self, *flags: str, listen: str = "127.0.0.1:0") -> Replica:
        replica = Replica(self._folder / str(len(self.replicas)), *flags, listen=listen)
        self.replicas.append(replica)
        return replica

    def end(self) -> None:
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()


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
