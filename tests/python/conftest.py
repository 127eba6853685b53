"""The real server, started for the tests. SVDSERVE_BUILD_DIR names the build tree whose bin/svdserve is meant."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, ContextManager

import numpy as np
import pytest

import fake_server
import svdserve

START_SECONDS = 60  # a server built with sanitizers on a busy machine
StartServer = Callable[..., ContextManager[str]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With SVDSERVE_TEST_SERVER_ONLY=1 only tests that start a server run: for builds that instrument the server."""
    if os.environ.get("SVDSERVE_TEST_SERVER_ONLY") != "1":
        return
    others = [item for item in items if "start_server" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in set(others)]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> StartServer:
    """start_server(*flags): a context manager that runs a server on a free port and gives its address."""
    build = os.environ.get("SVDSERVE_BUILD_DIR")
    assert build, "SVDSERVE_BUILD_DIR must name the build tree"
    program = Path(build, "bin", "svdserve")

    @contextlib.contextmanager
    def start(*flags: str) -> Iterator[str]:
        folder = tmp_path_factory.mktemp("server")
        ready = folder / "ready"
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([program, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                        f"--ready-file={ready}", *flags], stdout=log, stderr=subprocess.STDOUT)
        try:
            give_up = time.monotonic() + START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > give_up:
                    pytest.fail(f"the server did not start:\n{(folder / 'log').read_text()}")
                time.sleep(0.01)
            lines = dict(line.split("=", 1) for line in ready.read_text().splitlines())
            yield lines["grpc"]
            process.terminate()
            assert process.wait(START_SECONDS) == 0, (folder / "log").read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    return start


@pytest.fixture(scope="session")
def address(start_server: StartServer) -> Iterator[str]:
    """Address of a server that runs with its defaults."""
    with start_server() as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[svdserve.Client]:
    with svdserve.Client(address) as client:
        yield client


@pytest.fixture
def fake() -> Iterator[fake_server.FakeServer]:
    with fake_server.running() as fake:
        yield fake


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20250814)
