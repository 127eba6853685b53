"""Overload, shutdown, deadlines and broken answers, played by a server that does as it is told."""

import asyncio
import threading
import time

import fake_server
import grpc
import numpy as np
import pytest

import svdserve

EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
QUICK = svdserve.RetryPolicy(max_attempts=4, initial_backoff=0.001, max_backoff=0.002)


def blocking(fake, a, *, calls=None, retry=QUICK, **options):
    with svdserve.Client(fake.address, retry=retry, **(calls or {})) as client:
        return client.svdvals(a, **options)


def with_asyncio(fake, a, *, calls=None, retry=QUICK, **options):
    async def call():
        async with svdserve.AsyncClient(fake.address, retry=retry, **(calls or {})) as client:
            return await client.svdvals(a, **options)

    return asyncio.run(call())


both = pytest.mark.parametrize("svdvals", [blocking, with_asyncio])


def refusing(times, code, **details):
    """A handler that refuses the first `times` requests, then answers."""
    lock, left = threading.Lock(), [times]

    def handle(request, context):
        with lock:
            left[0] -= 1
            refused = left[0] >= 0
        if refused:
            fake_server.refuse(context, code, **details)
        return fake_server.decompose(request)

    return handle


@both
@pytest.mark.parametrize("code, details", [
    (EXHAUSTED, dict(reason="OVERLOADED_BYTES", retry_after=0.002)),
    (UNAVAILABLE, dict(reason="DRAINING", retry_after=0.002)),
    (UNAVAILABLE, {}),
])
def test_a_refused_call_is_repeated(fake, svdvals, code, details):
    fake.handler = refusing(3, code, **details)
    np.testing.assert_allclose(svdvals(fake, 2 * np.eye(3)), [2, 2, 2])
    assert len(fake.requests) == 4
    assert len({r.SerializeToString() for r in fake.requests}) == 1


@both
def test_the_last_attempt_reports_what_the_server_said(fake, svdvals):
    fake.handler = refusing(99, EXHAUSTED, reason="OVERLOADED_REQUESTS", metadata={"limit": "7"}, retry_after=0.0025)
    with pytest.raises(svdserve.Overloaded) as refused:
        svdvals(fake, np.eye(2))
    assert len(fake.requests) == 4
    error = refused.value
    assert (error.reason, error.metadata, error.code) == ("OVERLOADED_REQUESTS", {"limit": "7"}, EXHAUSTED)
    assert error.retry_after == pytest.approx(0.0025)


@both
def test_an_error_has_the_id_of_the_call_in_the_servers_log(fake, svdvals):
    fake.handler = refusing(99, grpc.StatusCode.INTERNAL, reason="DEVICE_FAULT", request_id="5f3c9a1e-1f")
    with pytest.raises(svdserve.Internal, match=r"\[INTERNAL, DEVICE_FAULT, request 5f3c9a1e-1f\]$") as failed:
        svdvals(fake, np.eye(2))
    assert failed.value.request_id == "5f3c9a1e-1f"
    mistake = svdserve.InvalidArgument("m", code=grpc.StatusCode.INVALID_ARGUMENT, request_id="5f3c9a1e-1f")
    assert str(mistake) == "m [INVALID_ARGUMENT]"


def test_an_error_says_its_code_once():
    assert str(svdserve.Error("m", code=grpc.StatusCode.CANCELLED, reason="CANCELLED")) == "m [CANCELLED]"
    assert str(svdserve.Error("m", code=grpc.StatusCode.UNAVAILABLE, reason="DRAINING")) == "m [UNAVAILABLE, DRAINING]"


@both
@pytest.mark.parametrize("code, raised", [
    (EXHAUSTED, svdserve.Overloaded),  # gRPC's own, of a message that is too long
    (grpc.StatusCode.INTERNAL, svdserve.Internal),
    (grpc.StatusCode.INVALID_ARGUMENT, svdserve.InvalidArgument),
    (grpc.StatusCode.CANCELLED, svdserve.Cancelled),
    (grpc.StatusCode.DEADLINE_EXCEEDED, svdserve.DeadlineExceeded),
    (grpc.StatusCode.UNIMPLEMENTED, svdserve.Unimplemented),
    (grpc.StatusCode.PERMISSION_DENIED, svdserve.Unauthenticated),
    (grpc.StatusCode.DATA_LOSS, svdserve.Error),
])
def test_other_failures_are_not_repeated(fake, svdvals, code, raised):
    fake.handler = refusing(1, code, reason="SOME_REASON")
    with pytest.raises(svdserve.Error) as failed:
        svdvals(fake, np.eye(2))
    assert (type(failed.value), failed.value.code, failed.value.reason) == (raised, code, "SOME_REASON")
    assert len(fake.requests) == 1


@both
def test_what_the_server_dropped_is_sent_again(fake, svdvals):
    """A server that stops just as a call comes in ends it with CANCELLED and nothing else."""
    fake.handler = refusing(2, grpc.StatusCode.CANCELLED)
    assert svdvals(fake, np.eye(2)).tolist() == [1, 1]
    assert len(fake.requests) == 3
    fake.handler = refusing(99, grpc.StatusCode.CANCELLED)
    with pytest.raises(svdserve.Unavailable, match="the server dropped the call"):
        svdvals(fake, np.eye(2))


@both
@pytest.mark.parametrize("timeout", [float("inf"), 1e30])
def test_an_endless_timeout_is_none(fake, svdvals, timeout):
    assert svdvals(fake, np.eye(2), timeout=timeout).tolist() == [1, 1]


@both
def test_a_timeout_that_is_no_number_is_refused(fake, svdvals):
    with pytest.raises(ValueError, match="timeout is NaN"):
        svdvals(fake, np.eye(2), timeout=float("nan"))
    assert not fake.requests


@both
def test_a_pause_beyond_the_timeout_is_not_begun(fake, svdvals):
    fake.handler = refusing(99, EXHAUSTED, reason="OVERLOADED_BYTES", retry_after=30)
    start = time.monotonic()
    with pytest.raises(svdserve.Overloaded) as refused:
        svdvals(fake, np.eye(2), timeout=25)
    assert time.monotonic() - start < 25
    assert (refused.value.retry_after, len(fake.requests)) == (30, 1)


@both
def test_the_timeout_covers_the_whole_call(fake, svdvals):
    released = threading.Event()

    def handle(request, context):
        context.add_callback(released.set)
        released.wait(30)
        return fake_server.decompose(request)

    fake.handler = handle
    with pytest.raises(svdserve.DeadlineExceeded):
        svdvals(fake, np.zeros((8, 2, 2)), timeout=0.2, calls=dict(piece_bytes=64, max_in_flight=2))
    assert released.wait(60), "the server never heard that the call is over"


@both
def test_a_timeout_of_zero_sends_nothing(fake, svdvals):
    with pytest.raises(TimeoutError):
        svdvals(fake, np.eye(2), timeout=0)
    assert not fake.requests


@both
def test_pieces_answered_out_of_order_land_where_they_belong(fake, svdvals):
    later = threading.Event()

    def handle(request, context):
        first = np.frombuffer(request.matrices.data, "<f8")[0] == 1
        if first:
            later.wait(30)
        else:
            later.set()
        return fake_server.decompose(request)

    fake.handler = handle
    a = np.arange(1, 11, dtype=float)[:, None, None] * np.eye(2)
    s, status = svdvals(fake, a, return_status=True, calls=dict(piece_bytes=64, max_in_flight=2))
    np.testing.assert_allclose(s[:, 0], np.arange(1, 11))
    assert not status.any() and len(fake.requests) == 5


@both
def test_a_refused_piece_does_not_disturb_the_others(fake, svdvals):
    refused, lock = set(), threading.Lock()

    def handle(request, context):
        with lock:
            first_time = request.matrices.data not in refused
            refused.add(request.matrices.data)
        if first_time:
            fake_server.refuse(context, EXHAUSTED, retry_after=0.001)
        return fake_server.decompose(request)

    fake.handler = handle
    a = np.arange(1, 21, dtype=float)[:, None, None] * np.eye(2)
    np.testing.assert_allclose(svdvals(fake, a, calls=dict(piece_bytes=64))[:, 1], np.arange(1, 21))
    assert len(fake.requests) == 20


@both
def test_one_bad_piece_fails_the_call_and_cancels_the_rest(fake, svdvals):
    cancelled, waiting = threading.Event(), threading.Event()

    def handle(request, context):
        if np.frombuffer(request.matrices.data, "<f8")[0] == 1:
            waiting.wait(30)
            fake_server.refuse(context, grpc.StatusCode.INTERNAL, reason="DEVICE_FAULT")
        context.add_callback(cancelled.set)
        waiting.set()
        cancelled.wait(30)
        return fake_server.decompose(request)

    fake.handler = handle
    a = np.array([1.0, 2.0])[:, None, None] * np.eye(2)
    with pytest.raises(svdserve.Internal) as failed:
        svdvals(fake, a, calls=dict(piece_bytes=32, max_in_flight=2))
    assert failed.value.reason == "DEVICE_FAULT"
    assert cancelled.wait(10)


@both
def test_the_servers_limits_are_kept_and_asked_for_once(fake, svdvals):
    fake.limits |= dict(max_message_bytes=4096 + 21 * 10)  # ten answers of two f64
    svdvals(fake, np.ones((95, 2, 2)))
    assert fake.infos == 1
    assert [r.matrices.count for r in sorted(fake.requests, key=lambda r: r.matrices.count)] == [9] * 5 + [10] * 5


def test_limits_are_asked_for_again_after_a_failure(fake):
    fake.handler = refusing(1, EXHAUSTED)
    with svdserve.Client(fake.address) as client:
        with pytest.raises(svdserve.Overloaded):
            client.svdvals(np.eye(2))
        client.svdvals(np.eye(2))
    assert fake.infos == 2


@both
def test_an_answer_that_cannot_be_read_is_an_error(fake, svdvals):
    def handle(request, context):
        answer = fake_server.decompose(request)
        answer.count += 1
        return answer

    fake.handler = handle
    with pytest.raises(svdserve.Error, match="the server's reply is invalid"):
        svdvals(fake, np.eye(2))


@both
def test_details_that_are_no_status_are_left_out(fake, svdvals):
    def handle(request, context):
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x07junk"),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")

    fake.handler = handle
    with pytest.raises(svdserve.InvalidArgument, match="no") as failed:
        svdvals(fake, np.eye(2))
    assert failed.value.field == "" and not failed.value.violations


def test_closing_the_client_ends_its_calls(fake):
    arrived, over = threading.Event(), threading.Event()

    def handle(request, context):
        context.add_callback(over.set)
        arrived.set()
        over.wait(30)

    fake.handler = handle
    client = svdserve.Client(fake.address)
    failures = []

    def call():
        try:
            client.svdvals(np.eye(2))
        except svdserve.Error as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert arrived.wait(30)
    client.close()
    client.close()
    thread.join(30)
    assert [type(f) for f in failures] == [svdserve.Cancelled]
    assert over.wait(10)
    for late in (lambda: client.svdvals(np.eye(2)), client.info, client.health):
        with pytest.raises(svdserve.Cancelled):
            late()


def test_closing_the_client_ends_a_pause(fake):
    fake.handler = refusing(99, UNAVAILABLE, retry_after=300)
    client = svdserve.Client(fake.address)
    refused = threading.Event()
    client._closed.wait = lambda pause, wait=client._closed.wait: (refused.set(), wait(pause))[1]
    failures = []

    def call():
        try:
            client.svdvals(np.eye(2))
        except svdserve.Error as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert refused.wait(30)
    client.close()
    thread.join(30)
    assert [type(f) for f in failures] == [svdserve.Cancelled]


def test_closing_or_cancelling_with_asyncio(fake):
    over = threading.Event()

    async def main():
        arrived, loop = asyncio.Event(), asyncio.get_running_loop()

        def handle(request, context):
            context.add_callback(over.set)
            loop.call_soon_threadsafe(arrived.set)
            over.wait(30)

        fake.handler = handle
        client = svdserve.AsyncClient(fake.address)
        call = asyncio.create_task(client.svdvals(np.eye(2)))
        await asyncio.wait_for(arrived.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(over.wait, 60)
        assert over.is_set(), "cancelling the coroutine must cancel the call"

        over.clear()
        arrived.clear()
        call = asyncio.create_task(client.svdvals(np.eye(2)))
        await asyncio.wait_for(arrived.wait(), 30)
        await client.close()
        with pytest.raises(svdserve.Cancelled):
            await call
        with pytest.raises(svdserve.Cancelled):
            await client.svdvals(np.eye(2))

    asyncio.run(main())


def test_nobody_at_the_address():
    with svdserve.Client("127.0.0.1:1", retry=svdserve.RetryPolicy(max_attempts=2, initial_backoff=0.001)) as client:
        with pytest.raises(svdserve.Unavailable) as failed:
            client.svdvals(np.eye(2), timeout=60)
        assert isinstance(failed.value, ConnectionError)
        with pytest.raises(svdserve.Unavailable):
            client.health(timeout=60)


def test_pauses_grow_keep_to_the_policy_and_honour_the_server():
    policy = svdserve.RetryPolicy(max_attempts=10, initial_backoff=0.1, max_backoff=1.0)
    plain, asked = svdserve.Unavailable("gone"), svdserve.Overloaded("full", retry_after=2.0)
    for attempt in range(1, 10):
        longest = min(1.0, 0.1 * 2 ** (attempt - 1))
        pauses = [policy.pause(plain, attempt, None) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
        assert all(2.0 <= policy.pause(asked, attempt, None) <= 2.5 for _ in range(200))
    assert policy.pause(plain, 10, None) is None
    assert policy.pause(asked, 1, 1.9) is None
    assert policy.pause(svdserve.Overloaded("too long"), 1, None) is None


@pytest.mark.parametrize("arguments", [dict(piece_bytes=0), dict(max_in_flight=0), dict(max_message_bytes=0),
                                       dict(max_message_bytes=2**31), dict(tls=svdserve.Tls(cert=b"x"))])
def test_senseless_arguments_of_the_constructor(arguments):
    with pytest.raises(ValueError):
        svdserve.Client("127.0.0.1:1", **arguments)
    with pytest.raises(ValueError):
        svdserve.AsyncClient("127.0.0.1:1", **arguments)
