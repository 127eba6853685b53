"""A server that is killed while it has a large matrix: the call goes on with the next one, with the same bits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from replicas import Fleet, wait_until

import svdserve
from svdserve._replicas._resumption import Resumption

IS_LONG = os.environ.get("SVDSERVE_TEST_SIZE") == "long"
FULL = not IS_LONG  # bases that fill every window between the server and the client
PATIENT = svdserve.RetryPolicy(max_attempts=1000, max_backoff=0.2)  # a start takes long on a busy machine


class Survivor:
    """A server, and the next one at its address with its directory, and so on."""

    def __init__(self, folder: Path) -> None:
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir(mode=0o700)
        self.fleet = Fleet(folder / "servers")
        (folder / "servers").mkdir()
        self.server = self._start()

    def _start(self, listen: str | None = None):
        """One that saves a state whenever it can."""
        return self.fleet.start(f"--checkpoint-dir={self.checkpoints}", "--checkpoint-interval=0s", listen=listen)

    def replace(self) -> None:
        """By kill -9."""
        self.server.kill()
        self.server = self._start(self.server.address)


@pytest.fixture
def survivor(tmp_path, start_server):
    survivor = Survivor(tmp_path)
    yield survivor
    survivor.fleet.end()


@pytest.fixture
def matrix():
    return np.random.default_rng(5).standard_normal((600, 520))


def blocking(address, a, progress, *, retry=PATIENT):
    with svdserve.Client(address, retry=retry) as client:
        return client.svd(a, full_matrices=FULL, progress=progress, timeout=600)


def with_asyncio(address, a, progress, *, retry=PATIENT):
    async def call():
        async with svdserve.AsyncClient(address, retry=retry) as client:
            return await client.svd(a, full_matrices=FULL, progress=progress, timeout=600)

    return asyncio.run(call())


both = pytest.mark.parametrize("svd", [blocking, with_asyncio])


def assert_same(got, want):
    for name in ("U", "S", "Vh"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))


class Once:
    """Progress that calls `action` when a stage has begun for which `wanted` holds, and never again."""

    def __init__(self, wanted, action):
        self._wanted, self._action, self.done = wanted, action, False

    def __call__(self, progress):
        if not self.done and self._wanted(progress.stage):
            self.done = True
            self._action()


@both
@pytest.mark.parametrize("stage", ["compute", "download"])
def test_a_killed_server_costs_no_upload(survivor, matrix, svd, stage):
    want = svd(survivor.server.address, matrix, None)
    for attempt in range(20):  # on a busy machine all may have been sent before the client hears of it
        kill = Once(lambda s: s == "download" if stage == "download" else s not in ("upload", "download"),
                    survivor.replace)
        assert_same(svd(survivor.server.address, matrix, kill), want)
        assert kill.done
        assert survivor.server.metric("svdserve_factor_received_bytes_total") == 0
        if survivor.server.metric("svdserve_factors_resumed_total") == 1:
            # Files of an attempt whose results had all been sent may still be there.
            assert wait_until(lambda most=attempt: len(list(survivor.checkpoints.glob("*/request"))) <= most)
            return
    pytest.fail("the call never went on with its matrix")


@both
def test_an_upload_that_is_cut_off_begins_again(survivor, matrix, svd):
    want = svd(survivor.server.address, matrix, None)
    kill = Once(lambda s: s == "upload", survivor.replace)
    assert_same(svd(survivor.server.address, matrix, kill), want)
    assert kill.done


@both
def test_a_matrix_that_the_next_server_does_not_know_is_sent_again(survivor, matrix, svd):
    want = svd(survivor.server.address, matrix, None)

    def forget():
        survivor.server.kill()
        for folder in survivor.checkpoints.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)
        survivor.replace()

    for _ in range(20):
        kill = Once(lambda s: s not in ("upload", "download"), forget)
        assert_same(svd(survivor.server.address, matrix, kill), want)
        assert kill.done
        if survivor.server.metric("svdserve_factor_received_bytes_total") == matrix.nbytes:
            return
    pytest.fail("the matrix was never sent again")


@both
def test_a_server_that_stops_for_good_reason_hands_over(survivor, matrix, svd):
    """As at a rolling update: it gives up what takes too long, and the next one goes on."""
    want = svd(survivor.server.address, matrix, None)

    def update():
        survivor.server.signal(signal.SIGTERM)
        time.sleep(0.3)
        survivor.server.signal(signal.SIGINT)
        survivor.server.process.wait(600)
        survivor.replace()

    kill = Once(lambda s: s not in ("upload", "download"), update)
    assert_same(svd(survivor.server.address, matrix, kill), want)


@both
def test_without_retries_the_call_fails(survivor, matrix, svd):
    for _ in range(20):
        kill = Once(lambda s: s not in ("upload", "download"), survivor.replace)
        try:
            svd(survivor.server.address, matrix, kill, retry=svdserve.RetryPolicy(max_attempts=1))
        except svdserve.Unavailable:
            return
    pytest.fail("the call never failed")


def test_several_matrices_go_on_side_by_side(survivor):
    stack = np.random.default_rng(7).standard_normal((3, 560, 520))
    want = blocking(survivor.server.address, stack, None)
    kill = Once(lambda s: s not in ("upload", "download"), survivor.replace)
    with svdserve.Client(survivor.server.address, retry=PATIENT) as client:
        assert_same(client.svd(stack, full_matrices=FULL, progress=kill, timeout=600), want)


def test_at_random_moments(survivor, matrix):
    """The bits are the same whenever the server is killed. After commit nothing is sent twice."""
    random_moments = random.Random(11)
    if IS_LONG:
        matrix = np.random.default_rng(5).standard_normal((1 << 16, 512))
    begin = time.monotonic()
    want = blocking(survivor.server.address, matrix, None)
    took = time.monotonic() - begin
    for _ in range(20 if IS_LONG else 5):
        timer = threading.Timer(random_moments.uniform(0, 1.1 * took), survivor.replace)
        timer.start()
        got = blocking(survivor.server.address, matrix, None)
        timer.join()
        assert_same(got, want)
        if survivor.server.metric("svdserve_factors_resumed_total"):
            assert survivor.server.metric("svdserve_factor_received_bytes_total") == 0


@pytest.mark.parametrize("method", ["jacobi", "auto"])
def test_sweeps_that_were_saved_are_not_repeated(survivor, matrix, method):
    def call(matrix):
        with svdserve.Client(survivor.server.address, retry=PATIENT) as client:
            return client.svd(matrix, full_matrices=FULL, method=method, timeout=600)

    want = call(matrix)
    for _ in range(20):  # it may be done before it is noticed
        survivor.replace()  # it has saved no state yet
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(call, matrix)
            # They are those of the QR, of the start, and two of sweeps: the second one comes after some sweep.
            wait_until(lambda: running.done() or survivor.server.metric("svdserve_checkpoint_states_total") >= 4)
            survivor.replace()
            assert_same(running.result(600), want)
        sweeps = survivor.server.metric("svdserve_factor_sweeps_total")
        if survivor.server.metric("svdserve_factors_resumed_total") == 1 and sweeps > 0:
            assert 1 <= survivor.server.metric("svdserve_checkpoint_resumed_sweeps_total") <= sweeps
            return
    pytest.fail("the call was never killed in its sweeps")


def leading(client, progress):
    return client.svd(np.random.default_rng(8).standard_normal((1500, 900)), top_k=7, progress=progress, timeout=600)


def tridiagonal(client, progress):
    a = np.random.default_rng(9).standard_normal((700, 700))
    return client.eigh(a + a.T, method="tridiagonal", progress=progress, timeout=600)


def relative(client, progress):
    a = np.random.default_rng(9).standard_normal((540, 540))
    return client.eigh(a + a.T, accuracy="relative", progress=progress, timeout=600)


def general(client, progress):
    return client.eig(np.random.default_rng(10).standard_normal((560, 560)), progress=progress, timeout=600)


@pytest.mark.parametrize("decompose", [leading, tridiagonal, relative, general])
def test_every_kind_goes_on(survivor, decompose):
    """Those without states are computed again from the operand that the next server has."""
    with svdserve.Client(survivor.server.address, retry=PATIENT) as client:
        want = decompose(client, None)
        for _ in range(20):  # it may be done before it is noticed
            kill = Once(lambda stage: stage not in ("upload", "download"), survivor.replace)
            got = decompose(client, kill)
            for one, other in zip(got, want, strict=True):
                np.testing.assert_array_equal(one, other)
            assert kill.done
            assert survivor.server.metric("svdserve_factor_received_bytes_total") == 0
            if survivor.server.metric("svdserve_factors_resumed_total") == 1:
                return
    pytest.fail("the call never went on with its matrix")


def test_svdctl_goes_on(survivor, matrix, tmp_path):
    svdctl = Path(os.environ["SVDSERVE_BUILD_DIR"], "bin", "svdctl")
    np.save(tmp_path / "a.npy", matrix)

    def run(name):
        return subprocess.Popen([svdctl, "svd", tmp_path / "a.npy", "-o", tmp_path / name, "--method", "jacobi",
                                 "--address", survivor.server.address, "--timeout", "600s"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    first = run("want")
    output, _ = first.communicate(timeout=600)
    assert first.returncode == 0, output
    for _ in range(20):  # it may be done before it is noticed
        second = run("got")
        assert wait_until(lambda: list(survivor.checkpoints.glob("*/request")) or second.poll() is not None)
        survivor.replace()
        output, _ = second.communicate(timeout=600)
        assert second.returncode == 0, output
        for part in ("u", "s", "vh"):
            assert (tmp_path / f"got.{part}.npy").read_bytes() == (tmp_path / f"want.{part}.npy").read_bytes()
        if survivor.server.metric("svdserve_factors_resumed_total") == 1:
            assert survivor.server.metric("svdserve_factor_received_bytes_total") == 0
            return
    pytest.fail("svdctl never went on with its matrix")


# --- when to go on, by the rules alone -----------------------------------------------------------

GONE = svdserve.Unavailable("gone")
UNKNOWN = svdserve.Error("unknown", reason="RESUME_UNKNOWN")


class FakeFactor(types.SimpleNamespace):
    def forget_token(self):
        self.token = b""


def make(policy=svdserve.RetryPolicy(initial_backoff=1.0, max_backoff=4.0, max_server_delay=60.0), **factor):
    now = [100.0]
    return (Resumption(policy, lambda: now[0]), FakeFactor(**{"accepted": False, "is_resumed": False, "survives": True, "token": b"t"} | factor),
            now)


def test_pauses_grow_and_last_as_long_as_the_timeout():
    resumption, factor, _ = make()
    pauses = [resumption.pause(factor, GONE, 50.0) for _ in range(50)]
    assert all(0.5 * min(4.0, 2.0**i) <= pause <= min(4.0, 2.0**i) for i, pause in enumerate(pauses))
    assert resumption.pause(factor, GONE, 0.1) is None


def test_without_a_timeout_they_end_as_well():
    resumption, factor, now = make()
    assert resumption.pause(factor, GONE, None) is not None
    now[0] += 59
    assert resumption.pause(factor, GONE, None) is None
    factor.accepted = True  # a server went on with it, and they begin anew
    assert resumption.pause(factor, GONE, None) is not None


@pytest.mark.parametrize("factor", [{"survives": False}, {"policy": svdserve.RetryPolicy(max_attempts=1)}])
def test_no_server_gave_a_token(factor):
    resumption, factor, _ = make(**factor)
    assert resumption.pause(factor, GONE, 50.0) is None


def test_other_errors_are_final():
    resumption, factor, _ = make()
    assert resumption.pause(factor, svdserve.InvalidArgument("wrong"), 50.0) is None


def test_an_unknown_token_is_forgotten():
    resumption, factor, _ = make(is_resumed=True)
    assert resumption.pause(factor, UNKNOWN, 50.0) == 0.0
    assert factor.token == b""


def test_a_matrix_that_ends_every_server_is_given_up():
    resumption, factor, _ = make(policy=svdserve.RetryPolicy(max_attempts=3), accepted=True, is_resumed=True)
    assert [resumption.pause(factor, GONE, 50.0) is not None for _ in range(4)] == [True, True, False, False]
