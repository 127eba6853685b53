"""A private server of this process: found, started, shared by clients, and stopped."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import grpc

from ._client import Client
from .aio import AsyncClient
from .errors import Unavailable

PROGRAM_VARIABLE = "SVDSERVE_PROGRAM"
_KEPT_VARIABLES = ("SVDSERVE_CUDA_PLUGIN",)  # every other SVDSERVE_* would be a flag of the private server
_LOG_LINES = 12  # of a server that does not start
_STOP_SECONDS = 20.0
_PLAIN_PATH = re.compile(r"[\w./-]{1,80}", re.ASCII)  # a socket's path has at most 107 bytes, and gRPC decodes %

# The kernel ends the server as soon as the thread that started it ends, even if the process is killed. This little program
# asks for that and becomes the server. So no code runs between fork and exec, where other threads may hold locks.
_BECOME_SERVER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that wants a server has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""

_HOW_TO_GET_IT = (
    "pip install 'svdserve[server]' brings it for Linux on x86-64. Elsewhere build it, and name build/release/bin/svdserve "
    f"in {PROGRAM_VARIABLE} or put it on PATH")


def find_program() -> str:
    """The path of the program `svdserve`: SVDSERVE_PROGRAM, the wheel svdserve-server's, or that on PATH."""
    if named := os.environ.get(PROGRAM_VARIABLE):
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return os.path.abspath(named)
        raise FileNotFoundError(f"{PROGRAM_VARIABLE} is {named!r}, but must name an executable file; {_HOW_TO_GET_IT}")
    # The wheel's folder is the package's own, or beside it on the path where this package is installed from a checkout.
    for folder in [Path(__file__).parents[1], *map(Path, filter(None, sys.path))]:
        program = folder / "svdserve" / "bin" / "svdserve"
        if os.access(program, os.X_OK):
            return str(program)
    if on_path := shutil.which("svdserve"):
        return os.path.abspath(on_path)
    raise FileNotFoundError(f"svdserve.local() found no program svdserve; {_HOW_TO_GET_IT}")


def _flag(name: str, value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"--{name.replace('_', '-')}={text}"


def _private_folder() -> str:
    """A new folder that only this user may enter, with a path that a socket can have."""
    root = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="svdserve-", dir=root if _PLAIN_PATH.fullmatch(root) else "/tmp")


class _Server:
    """A server process, from its start to its end, and the number of clients that use it."""

    def __init__(self, flags: tuple[str, ...], start_timeout: float) -> None:
        program = find_program()
        self.flags = flags
        self.users = 0
        self._owner = os.getpid()
        self._failure: OSError | None = None
        self._folder = Path(_private_folder())
        self.address = f"unix:{self._folder}/socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self._ended = threading.Event(), threading.Event()
        command = [program, f"--listen={self.address}", "--metrics-listen=", f"--ready-file={self._folder}/ready",
                   "--drain-delay=0s", "--drain-timeout=2s", "--max-peer-percent=100", *flags]
        keeper = threading.Thread(target=self._keep, args=(command,), name="svdserve-local", daemon=True)
        try:
            keeper.start()
            self._wait_until_ready(start_timeout)
        except BaseException:
            if keeper.ident is not None:
                self._started.wait()
            self.stop()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return not self._ended.is_set()

    def wait_for_end(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Ends the server and removes its folder. A forked child leaves both to the process that started them."""
        if os.getpid() != self._owner:
            return
        if self._process is not None and self.runs:
            self._process.terminate()
            if not self._ended.wait(_STOP_SECONDS):
                self._process.kill()
                self._ended.wait(_STOP_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, command: list[str]) -> None:
        """Starts the server and waits for its end. The thread lives as long, because the server ends with it."""
        try:
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith("SVDSERVE_") or name in _KEPT_VARIABLES}
            guard = [sys.executable, "-I", "-S", "-c", _BECOME_SERVER, str(self._owner)] if sys.executable else []
            with open(self._folder / "log", "wb") as log:
                # A session of its own: Ctrl-C interrupts this process and not its server.
                self._process = subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 env=environment, start_new_session=True)
        except OSError as error:
            self._failure = error
            self._ended.set()
            return
        finally:
            self._started.set()
        self._process.wait()
        self._ended.set()

    def _wait_until_ready(self, timeout: float) -> None:
        give_up = time.monotonic() + timeout
        self._started.wait()
        while not (self._folder / "ready").exists():
            if self._ended.wait(0.005):
                why = str(self._failure or f"exit status {self._process.returncode if self._process else None}")
            elif time.monotonic() > give_up:
                why = f"it was not ready within {timeout:g} s; start_timeout sets this"
            else:
                continue
            raise Unavailable(f"the private server did not start: {why}{self._end_of_log()}",
                              code=grpc.StatusCode.UNAVAILABLE)

    def _end_of_log(self) -> str:
        try:
            lines = (self._folder / "log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except OSError:
            return ""
        return "".join(f"\n    {line}" for line in lines)


class _Servers:
    """The servers of this process. One of them is shared."""

    def __init__(self) -> None:
        self._parents: list[_Server] = []  # of the process that forked this one: neither stopped nor collected here
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._running: set[_Server] = set()
        self._shared: _Server | None = None

    def take(self, flags: tuple[str, ...], shared: bool, start_timeout: float) -> _Server:
        with self._lock:
            server = self._shared if shared else None
            if server is not None and not server.runs:
                self._end(server)
                server = None
            if server is None:
                server = _Server(flags, start_timeout)
                self._running.add(server)
                if shared:
                    self._shared = server
            elif flags and flags != server.flags:
                raise ValueError(f"the shared server of this process runs with {' '.join(server.flags) or 'no flags'}, not "
                                 f"with {' '.join(flags)}; close its clients first, or pass shared=False")
            server.users += 1
            return server

    def give_back(self, server: _Server) -> None:
        with self._lock:
            server.users -= 1
            if server.users == 0:
                self._end(server)

    def stop_all(self) -> None:
        with self._lock:
            for server in list(self._running):
                self._end(server)

    def after_fork(self) -> None:
        """In the child: its parent's servers are not its own. Another thread of the parent may have held the lock."""
        self._parents += self._running
        self._begin()

    def _end(self, server: _Server) -> None:
        self._running.discard(server)
        if self._shared is server:
            self._shared = None
        server.stop()


_servers = _Servers()
atexit.register(_servers.stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_servers.after_fork)


class LocalClient(Client):
    """The client of a private server, which local() makes. Closing it stops the server if no other client shares it.

    `async with` gives an AsyncClient of the same server instead.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._uses = [server]  # empty once this client is closed; pop() is for one thread alone
        self._async: AsyncClient | None = None
        super().__init__(server.address)

    @property
    def address(self) -> str:
        """Address of the server, for other clients and processes of this user: "unix:/tmp/svdserve-.../socket"."""
        return self._server.address

    @property
    def pid(self) -> int:
        """Process number of the server."""
        return self._server.pid

    def close(self) -> None:
        """Ends the connection, as Client.close, and this client's use of the server."""
        super().close()
        try:
            server = self._uses.pop()
        except IndexError:
            return
        _servers.give_back(server)

    def __enter__(self) -> LocalClient:
        return self

    async def __aenter__(self) -> AsyncClient:
        self._async = AsyncClient(self._server.address)
        return self._async

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        try:
            if self._async is not None:
                await self._async.close()
        finally:
            await asyncio.to_thread(self.close)


def local(*, threads: int | None = None, devices: str | Iterable[str] | None = None, shared: bool = True,
          start_timeout: float = 60.0, **flags: str | int | float) -> LocalClient:
    """Starts a private server on this machine and returns a client of it.

    The server listens on a Unix socket in a new folder that only this user may enter. It ends with its last client, at the
    latest with this process, even if that is killed. SVDSERVE_* variables do not reach it as flags.

    The program is SVDSERVE_PROGRAM, else that of the wheel svdserve-server, else `svdserve` on PATH.
    `pip install 'svdserve[server]'` brings the wheel, which is for Linux on x86-64; `svdserve[cuda]` adds NVIDIA GPUs.

    Args:
        threads: cores that the server may use; None: all.
        devices: such as "host", "cuda:0" or ["host", "cuda:1"]; None: the CPU and every GPU that works.
        shared: True: all shared clients of the process have one server. False: this client has a server of its own.
        start_timeout: seconds that the server may take until it serves.
        flags: other flags of the program, such as max_batch_bytes="16MiB" for --max-batch-bytes. `svdserve --help` lists
            them.

    Returns:
        LocalClient, a Client to be used in a `with` statement or to be closed. In `async with` it is an AsyncClient.

    Raises:
        FileNotFoundError: there is no program; the message says how to get it.
        Unavailable: the server did not start; the message has the last lines of its log.
        ValueError: shared clients with other flags are open.

    A forked child may use `Client(client.address)` while the parent's client is open. Its own local() starts its own server.

    Example:
        >>> import numpy as np, svdserve
        >>> with svdserve.local(threads=1) as client:
        ...     client.svdvals(np.eye(2))
        array([1., 1.])
    """
    named = devices if isinstance(devices, str) or devices is None else ",".join(devices)
    given = {"threads": threads, "devices": named, **flags}
    words = tuple(_flag(name, value) for name, value in given.items() if value is not None)
    server = _servers.take(words, shared, start_timeout)
    try:
        return LocalClient(server)
    except BaseException:
        _servers.give_back(server)
        raise
