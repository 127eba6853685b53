"""svdserve.local(): a private server is there for its clients, and gone after them, however they end."""

import asyncio
import doctest
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import svdserve
from svdserve import _local

PROGRAM = Path(os.environ.get("SVDSERVE_BUILD_DIR", ""), "bin", "svdserve")
WAIT = 120  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setenv("SVDSERVE_PROGRAM", str(PROGRAM))
    yield
    assert not _local._servers._running, "a test left a server"


def folder_of(client):
    return Path(client.address.removeprefix("unix:")).parent


def is_gone(client):
    return not Path("/proc", str(client.pid)).exists() and not folder_of(client).exists()


def run(code, *arguments):
    """A Python process that runs `code`; its standard output."""
    return subprocess.run([sys.executable, "-W", "error", "-c", f"import os, sys, svdserve\n{code}", *arguments], check=True,
                          timeout=WAIT, stdout=subprocess.PIPE, text=True).stdout


def test_values_from_a_private_server():
    with svdserve.local(threads=1, devices="host") as client:
        assert client.svdvals(np.diag([3.0, 2.0])).tolist() == [3, 2]
        assert stat.S_IMODE(folder_of(client).stat().st_mode) == 0o700
        assert len(client.info().devices) == 1
        assert os.getsid(client.pid) != os.getsid(0), "Ctrl-C must not reach the server"
        with svdserve.Client(client.address) as other:
            assert other.health() == "SERVING"
    assert is_gone(client)
    with pytest.raises(svdserve.Cancelled):
        client.info()
    client.close()


def test_an_exception_ends_the_server():
    with pytest.raises(ZeroDivisionError), svdserve.local() as client:
        raise ZeroDivisionError
    assert is_gone(client)


def test_one_server_for_a_process():
    with svdserve.local(threads=1, log_level="debug") as first:
        with svdserve.local() as second, svdserve.local(threads=1, log_level="debug") as third:
            assert first.pid == second.pid == third.pid
            with pytest.raises(ValueError, match="runs with --threads=1 --log-level=debug, not with --threads=2; close"):
                svdserve.local(threads=2)
            with svdserve.local(shared=False, threads=2) as alone:
                assert alone.pid != first.pid
            assert is_gone(alone)
        assert first.health() == "SERVING"
    assert is_gone(first)


def test_threads_that_start_at_once_share_a_server_that_outlives_them():
    clients = []
    threads = [threading.Thread(target=lambda: clients.append(svdserve.local(threads=1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len({client.pid for client in clients}) == 1 and len(clients) == 4
    for client in clients:
        assert client.health() == "SERVING"
        client.close()
    assert is_gone(clients[0])


def test_a_server_that_was_killed_is_replaced():
    with svdserve.local(threads=1) as first:
        os.kill(first.pid, signal.SIGKILL)
        assert first._server.wait_for_end(WAIT)
        with pytest.raises(svdserve.Unavailable):
            first.health()
        with svdserve.local(threads=1) as second:
            assert second.pid != first.pid and second.health() == "SERVING"
    assert is_gone(first) and is_gone(second)


def test_async_client():
    async def values():
        async with svdserve.local(threads=1) as client:
            assert isinstance(client, svdserve.AsyncClient)
            return await client.svdvals(np.eye(3))

    assert asyncio.run(values()).tolist() == [1, 1, 1]


def test_the_end_of_the_interpreter_ends_the_server():
    pid, folder = run("""
client = svdserve.local(threads=1)
client.svdvals([[1.0]])
print(client.pid, os.path.dirname(client.address[5:]))
""").split()
    assert not Path("/proc", pid).exists() and not Path(folder).exists()


def test_an_interpreter_that_is_killed_leaves_no_server():
    code = "import svdserve, sys\nc = svdserve.local(threads=1)\nprint(c.pid, c.address, flush=True)\nsys.stdin.read()"
    python = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        pid, address = python.stdout.readline().split()
        server = os.pidfd_open(int(pid))
    finally:
        python.kill()
        python.communicate()
    readable, _, _ = select.select([server], [], [], WAIT)  # of a process that has ended
    os.close(server)
    assert readable
    _local.shutil.rmtree(Path(address.removeprefix("unix:")).parent)


def test_a_forked_child_leaves_its_parents_server():
    run("""
with svdserve.local(threads=1) as client:
    child = os.fork()  # before this process has called gRPC
    if child == 0:
        own = svdserve.local(threads=1)
        assert own.pid != client.pid
        client.close()
        own.close()
        sys.exit(0)  # with the functions of atexit
    assert os.waitpid(child, 0)[1] == 0
    assert client.health() == "SERVING"
""")


@pytest.mark.parametrize("flags, said", [
    ({"max_batch_bytes": "many"}, "exit status 2(?s:.)*max-batch-bytes"),
    ({"thread": 3}, "exit status 2(?s:.)*thread"),
    ({"devices": ["host", "cuda:77"]}, "exit status 1(?s:.)*cuda:77"),
    ({"start_timeout": 0}, "not ready within 0 s; start_timeout sets this"),
])
def test_a_server_that_does_not_start_says_why(flags, said):
    with pytest.raises(svdserve.Unavailable, match=said):
        svdserve.local(**flags)


def test_a_program_that_cannot_run_says_why(tmp_path, monkeypatch):
    broken = tmp_path / "svdserve"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    monkeypatch.setenv("SVDSERVE_PROGRAM", str(broken))
    with pytest.raises(svdserve.Unavailable, match="did not start(?s:.)*Exec format error"):
        svdserve.local()


def test_where_the_program_is_found(tmp_path, monkeypatch):
    def program(folder):
        folder.mkdir(parents=True)
        (folder / "svdserve").write_text("")
        (folder / "svdserve").chmod(0o755)
        return str(folder / "svdserve")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    on_path = program(tmp_path / "on path")
    monkeypatch.setenv("PATH", str(tmp_path / "on path"))
    assert _local.find_program() == str(PROGRAM)
    monkeypatch.setenv("SVDSERVE_PROGRAM", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="SVDSERVE_PROGRAM is .* but must name an executable file; pip install"):
        svdserve.local()
    monkeypatch.delenv("SVDSERVE_PROGRAM")
    assert _local.find_program() == on_path
    assert _local.find_program() != program(tmp_path / "svdserve" / "bin") == _local.find_program()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match=r"found no program svdserve; pip install 'svdserve\[server\]'"):
        svdserve.local()


def test_variables_of_other_servers_do_not_matter(monkeypatch):
    monkeypatch.setenv("SVDSERVE_TLS_CERT", "/no/such/file")
    monkeypatch.setenv("SVDSERVE_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("TMPDIR", "/tmp/" + "long" * 30)
    monkeypatch.setattr(_local.tempfile, "tempdir", "/tmp/" + "long" * 30)
    with svdserve.local(threads=1) as client:
        assert client.health() == "SERVING" and str(folder_of(client)).startswith("/tmp/svdserve-")


def test_documentation():
    results = doctest.testmod(_local, optionflags=doctest.NORMALIZE_WHITESPACE, report=True)
    assert results.attempted >= 2 and results.failed == 0
