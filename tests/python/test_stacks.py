"""Stacks of large matrices: several go at once, and neither results nor errors show it."""

import asyncio
import signal
import subprocess
import sys
import threading
import types

import grpc
import numpy as np
import pytest

import svdserve
from svdserve._codec import Operand, Result
from svdserve._query import Query
from svdserve._stack import Stack
from svdserve.values import LargeSummary, MatrixStatus
from test_eig import check_eig
from test_large import Coroutines, either  # noqa: F401  # a fixture
from test_svd import matrices

BUSY = dict(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED_BYTES", retry_after=0.001)


@pytest.fixture(autouse=True)
def matrices_of_order_40_are_large(fake):
    fake.limits["max_values"] = 32


@pytest.mark.parametrize("verb", ["eig", "eigvals", "eigh", "svd"])
def test_four_at_once(either, fake, rng, verb):  # noqa: F811
    four = threading.Barrier(4)

    def wait(message):
        if message.WhichOneof("step") == "accepted":
            four.wait(20)

    fake.large.tamper = wait
    a = matrices(rng, 2, 4, 40, 40)
    getattr(either, verb)(a)
    assert len(fake.large.opens) == 8


@pytest.mark.parametrize("mebibytes, count, most, lanes", [(1, 9, 4, 4), (1, 3, 4, 3), (1, 9, 1, 1), (20, 9, 4, 3),
                                                           (40, 9, 4, 1), (4000, 9, 4, 1)])
def test_larger_matrices_go_fewer_at_once(mebibytes, count, most, lanes):
    assert Stack([types.SimpleNamespace(bytes=mebibytes << 20)] * count, most).lanes == lanes


def test_reports_are_in_the_order_of_the_matrices():
    result = Result(Operand(np.zeros((3, 2, 2))), Query(vectors="thin", eigenproblem="general"))
    for index in (2, 0, 1):
        result.put_large(index, LargeSummary(status=MatrixStatus.OK, method="qr", device=str(index), sweeps=0,
                                             rotations=0, proper_rotations=0, upload_seconds=0, queue_seconds=0,
                                             compute_seconds=0, download_seconds=0, phases=()))
    assert [summary.device for summary in result.summaries] == ["0", "1", "2"]


def test_a_matrix_whose_server_goes_in_the_upload_waits_for_the_others():
    """Also where the budget of retries is spent, so that it may not be sent again at once."""
    gone = svdserve.Unavailable("gone")

    def failed(servers, **state):
        stack = Stack([types.SimpleNamespace(bytes=1, accepted=True, is_resumed=False, survives=False, **state)
                       for _ in range(3)], 2, servers)
        first, second = stack.take(), stack.take()
        assert first.pause_after(gone, 0.5, None) is None
        ends = stack.failed(first, gone)
        stack.done(second)
        return ends, stack

    ends, stack = failed(2, is_sent=False)
    assert ends and stack.lanes == 1
    again = stack.take()
    assert again.index == 0 and again.alone and again.pause_after(gone, 0.5, None) == 0.5
    stack.raise_failure()
    for servers, is_sent in ((1, False), (2, True)):  # the server may be computing it
        ends, stack = failed(servers, is_sent=is_sent)
        assert not ends and stack.take() is None
        with pytest.raises(svdserve.Unavailable):
            stack.raise_failure()


class BusyBesideAnother:
    """The refusals of a server that has memory for one matrix."""

    def __init__(self, large):
        self._lock = threading.Lock()
        self._under_way = 0
        self.refused = 0
        large.refusals, large.tamper = self, self.watch

    def __bool__(self):
        with self._lock:
            self._under_way += 1
            return self._under_way > 1

    def pop(self, _):
        with self._lock:
            self._under_way -= 1
            self.refused += 1
        return BUSY

    def watch(self, message):
        if message.WhichOneof("step") == "summary":
            with self._lock:
                self._under_way -= 1


@pytest.mark.parametrize("kind", [svdserve.Client, Coroutines])
def test_a_matrix_refused_for_its_neighbours_waits_for_them(fake, rng, kind):
    """Also where retries are few: none of them is spent."""
    busy = BusyBesideAnother(fake.large)
    a = matrices(rng, 12, 40, 40)
    result = kind(fake.address, retry=svdserve.RetryPolicy(max_attempts=2, initial_backoff=0.5)).eig(a)
    assert np.abs(a @ result.eigenvectors - result.eigenvectors * result.eigenvalues[:, None]).max() < 1e-10
    assert len(fake.large.uploads) == 12 and 0 < busy.refused <= 6


def test_a_server_that_stays_busy_is_asked_as_often_as_the_policy_says(either, fake, rng):  # noqa: F811
    fake.large.refusals = [BUSY] * 100
    with pytest.raises(svdserve.Overloaded, match=r"^matrix \[\d\]: "):
        either.eig(matrices(rng, 8, 3, 3))
    assert len(fake.large.opens) <= 4 + 6


def test_no_update_after_the_callback_raised(either, rng):  # noqa: F811
    told, at_once = [], []
    lock = threading.Lock()

    def tell(progress):
        at_once.append(not lock.acquire(blocking=False))
        told.append(progress)
        lock.release()
        if len(told) == 5:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        either.eig(matrices(rng, 8, 30, 30), progress=tell)
    assert len(told) == 5 and not any(at_once)


@pytest.mark.parametrize("verb", ["svdvals", "eig"])
def test_what_progress_and_timeout_are(either, verb):  # noqa: F811
    with pytest.raises(TypeError, match="progress is 3, but must be True or callable"):
        getattr(either, verb)(np.eye(3), progress=3)
    with pytest.raises(TypeError, match="timeout is '1', but must be seconds or None"):
        getattr(either, verb)(np.eye(3), timeout="1")


def test_cancelling_a_coroutine_frees_the_server(fake, rng):
    fake.large.wait_after = "commit"

    async def ask():
        async with svdserve.AsyncClient(fake.address) as client:
            task = asyncio.create_task(client.eig(matrices(rng, 9, 5, 5)))
            await asyncio.to_thread(fake.large.reached.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert fake.large.gone.wait(60) and len(fake.large.opens) <= 4


INTERRUPTED = """
import signal, sys, numpy as np, svdserve
signal.signal(signal.SIGINT, signal.default_int_handler)
client = svdserve.Client(sys.argv[1])
try:
    client.eig(np.ones((9, 5, 5)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("point", ["commit", "refused"])
def test_ctrl_c_frees_the_server(fake, point):
    reached = fake.large.reached
    if point == "commit":
        fake.large.wait_after = point
    else:  # the client waits for its next attempt
        fake.large.refusals = [dict(BUSY, retry_after=100)] * 100
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, fake.address], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        if point == "commit":
            assert reached.wait(60)
        else:
            wait_for(lambda: len(fake.large.opens) >= 4)
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"interrupted\n"
        process.stdin.close()
        assert process.wait(60) == 0
    assert point == "refused" or fake.large.gone.wait(60)


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.1)
    pytest.fail("it never came")


# --- against the real server --------------------------------------------------------------------

def test_the_first_wrong_matrix_is_named(client, address, rng):
    a = matrices(rng, 12, 60, 60)
    a[3, 59, 59] = a[4, 0, 0] = a[5, 0, 1] = np.nan
    for _ in range(5):
        with pytest.raises(svdserve.InvalidArgument, match=r"^matrix \[3\]: a: the element in row 59 and column 59"):
            client.eigvals(a)
    with pytest.raises(svdserve.InvalidArgument, match=r"^matrix \[3\]: a: the element in row 59 and column 59"):
        Coroutines(address).eig(a)


def test_errors_name_the_argument(client):
    nan, large, signs = np.full((4, 4), np.nan), np.full((33, 33), np.nan), [1, 1, -1, -1]
    for call, name in ((lambda: client.eig(large), "a"), (lambda: client.eigh(nan, accuracy="relative"), "a"),
                       (lambda: client.hsvd(nan, signs), "g"), (lambda: client.eigh_factored(nan, signs), "g"),
                       (lambda: client.hsvd(np.ones((4, 4)), signs), "g"),
                       (lambda: client.hsvd(np.ones((2, 4)), signs), "g")):
        with pytest.raises(svdserve.InvalidArgument, match=f"^{name}: "):
            call()


def test_a_timeout_has_one_message(client, address, rng):
    for one in (client, Coroutines(address)):
        with pytest.raises(svdserve.DeadlineExceeded, match="^the timeout passed before the reply arrived") as late:
            one.eig(matrices(rng, 1500, 1500), timeout=0.1)  # no processor is so fast
        assert late.value.reason == "DEADLINE_EXCEEDED"


def test_a_long_stack(client, address, rng):
    a = matrices(rng, 50, 33, 33)
    check_eig(a, client.eig(a))
    check_eig(a, Coroutines(address).eig(a))
    for one, other in zip(client.eig(a, left=True), svdserve.Client(address, max_in_flight=1).eig(a, left=True)):
        assert np.array_equal(one, other)
