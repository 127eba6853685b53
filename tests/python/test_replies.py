"""Replies that a server must not send, and how much of one the client accepts."""

import asyncio

import fake_server
import grpc
import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus, _proto

EYES = np.stack([np.eye(3)] * 5)
QUICK = svdserve.RetryPolicy(max_attempts=4, initial_backoff=0.001, max_backoff=0.002)


def blocking(fake, name, *args, settings=None, **options):
    with svdserve.Client(fake.address, retry=QUICK, **(settings or {})) as client:
        return getattr(client, name)(*args, **options)


def with_asyncio(fake, name, *args, settings=None, **options):
    async def call():
        async with svdserve.AsyncClient(fake.address, retry=QUICK, **(settings or {})) as client:
            return await getattr(client, name)(*args, **options)

    return asyncio.run(call())


both = pytest.mark.parametrize("call", [blocking, with_asyncio])


def answering(change):
    """A handler whose right answer `change` makes a wrong one."""
    def handle(request, context):
        reply = fake_server.decompose(request)
        change(reply)
        return reply

    return handle


def exceptions(indices, statuses):
    def change(reply):
        reply.exception_indices[:], reply.exception_statuses[:] = indices, statuses

    return change


def setting(**fields):
    def change(reply):
        for name, value in fields.items():
            setattr(reply, name, value)

    return change


# --- small matrices -----------------------------------------------------------------------------

LIES = {
    "beyond the last matrix": (exceptions([5], [1]), "ascending indices of 5 matrices"),
    "far beyond": (exceptions([2**40], [1]), "ascending indices"),
    "before the first": (exceptions([-1], [1]), "ascending indices"),
    "one twice": (exceptions([1, 1], [1, 1]), "ascending indices"),
    "descending": (exceptions([2, 1], [1, 1]), "ascending indices"),
    "more than matrices": (exceptions(range(10**5), [1] * 10**5), "ascending indices"),
    "no status": (exceptions([0, 1], [1]), "2 indices and 1 statuses"),
    "no index": (exceptions([], [1]), "0 indices and 1 statuses"),
    "a status that is none": (exceptions([0], [0]), "without a status"),
    "fewer matrices": (setting(count=4), "holds 4 matrices"),
    "negative count": (setting(count=-5), "holds -5 matrices"),
    "fewer values": (setting(singular_values=b"12345678"), "8 bytes of singular_values"),
    "more values": (setting(singular_values=bytes(8 * 16)), "128 bytes of singular_values"),
    "vectors": (setting(left_vectors=b"12345678"), "left_vectors, which was not asked for"),
    "precoders": (setting(precoders=b"12345678"), "precoders, which was not asked for"),
    "capacities": (lambda reply: setattr(reply.mimo, "capacity", bytes(8)), "capacity, which was not asked for"),
    "columns": (setting(left_columns=3), "3 and 0 columns, 0 and 0 were asked for"),
    "a certificate": (lambda reply: setattr(reply.certificate, "residual", 1.0), "none was asked for"),
    "groups": (lambda reply: reply.groups.add(), "holds groups"),
}


@both
@pytest.mark.parametrize("lie", LIES)
def test_a_reply_to_another_question_is_invalid(fake, call, lie):
    change, words = LIES[lie]
    fake.handler = answering(change)
    with pytest.raises(svdserve.Internal, match="the server's reply is invalid: .*" + words) as raised:
        call(fake, "svdvals", EYES)
    assert raised.value.code is grpc.StatusCode.INTERNAL and len(fake.requests) == 1


def test_vectors_must_be_of_the_kind_that_was_asked_for(fake):
    def swap(reply):
        reply.combiners, reply.left_vectors = reply.left_vectors, b""

    fake.handler = answering(swap)
    with pytest.raises(svdserve.Internal, match="combiners, which was not asked for"):
        blocking(fake, "svd", EYES)
    fake.handler = answering(setting(right_columns=2))
    with pytest.raises(svdserve.Internal, match="3 and 2 columns, 3 and 3 were asked for"):
        blocking(fake, "svd", EYES)
    fake.handler = answering(lambda reply: reply.ClearField("certificate"))
    with pytest.raises(svdserve.Internal, match="no certificate"):
        blocking(fake, "svd", EYES, certificate=True)


def test_as_many_groups_as_were_sent(fake):
    fake.handler = answering(lambda reply: reply.groups.add())
    with pytest.raises(svdserve.Internal, match="it holds 3 groups, 2 were sent"):
        blocking(fake, "svdvals", [np.eye(2), np.eye(3)])


@pytest.mark.parametrize("number", [6, 77, 255, 256, 2**31 - 1, -1])
def test_a_status_of_a_later_contract_is_unknown(fake, number):
    fake.handler = answering(exceptions([1, 3], [number, 2]))
    _, statuses = blocking(fake, "svdvals", EYES, return_status=True)
    assert statuses.tolist() == [0, MatrixStatus.UNKNOWN, 0, MatrixStatus.NOT_CONVERGED, 0]


# --- the server's limits ------------------------------------------------------------------------

@both
@pytest.mark.parametrize("name", ["max_values", "max_dimension", "max_matrices", "max_message_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_that_no_server_has_are_not_the_callers_fault(fake, call, name, value):
    fake.limits[name] = value
    for method, args in (("svdvals", (EYES,)), ("info", ())):
        with pytest.raises(svdserve.Internal, match=f"limits.{name} is {value}, but must be at least 1"):
            call(fake, method, *args)
    assert not fake.requests


@pytest.mark.parametrize("name", ["max_groups", "max_large_bytes", "max_general_order", "max_hermitian_order"])
def test_some_limits_may_be_zero(fake, name):
    fake.limits[name] = 0
    blocking(fake, "svdvals", EYES)
    fake.limits[name] = -1
    with pytest.raises(svdserve.Internal, match=f"limits.{name} is -1, but must be at least 0"):
        blocking(fake, "svdvals", EYES)


# --- what is accepted, and what is announced ----------------------------------------------------

@both
def test_a_reply_beyond_the_limit_is_refused(fake, call):
    fake.handler = answering(setting(device="x" * 100_000))
    assert call(fake, "svdvals", EYES).shape == (5, 3)
    with pytest.raises(svdserve.Overloaded, match="max_message_bytes bounds replies") as raised:
        call(fake, "svdvals", EYES, settings=dict(max_message_bytes=50_000))
    assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and len(fake.requests) == 2  # not sent again


@both
def test_by_default_64_mebibytes_are_accepted(fake, call):
    fake.handler = answering(setting(device="x" * (65 << 20)))
    with pytest.raises(svdserve.Overloaded, match="max_message_bytes"):
        call(fake, "svdvals", EYES)


@both
def test_batches_are_cut_so_that_their_answers_are_accepted(fake, call):
    call(fake, "svdvals", np.ones((95, 2, 2)), settings=dict(max_message_bytes=4096 + 21 * 10))
    assert sorted(r.matrices.count for r in fake.requests) == [9] * 5 + [10] * 5


@both
@pytest.mark.parametrize("settings", [{}, dict(piece_bytes=200)])
def test_every_request_announces_its_size(fake, call, settings):
    call(fake, "svdvals", np.ones((40, 3, 2)), settings=settings)
    assert fake.announced == [str(r.ByteSize()) for r in fake.requests] and (len(fake.requests) > 1) == bool(settings)


def test_groups_announce_the_size_of_all(fake):
    blocking(fake, "svdvals", [np.ones((40, 3, 2)), np.eye(7), np.ones((2, 2), "c8")])
    assert fake.announced == [str(r.ByteSize()) for r in fake.requests]


@both
def test_a_refusal_before_the_request_was_read_arrives(fake, call):
    """The request is longer than any window: the server ends the call while the client still writes."""
    attempts = []

    def refuse_once(context):
        attempts.append(dict(context.invocation_metadata())["svdserve-request-bytes"])
        if len(attempts) < 3:
            fake_server.refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED_BYTES", retry_after=0.001)

    fake.refuse_unread = refuse_once
    a = np.broadcast_to(np.eye(4), (200_000, 4, 4))
    assert (call(fake, "svdvals", a, settings=dict(piece_bytes=64 << 20)) == 1).all()
    assert len(attempts) == 3 and len(set(attempts)) == 1 and int(attempts[0]) > a.size * 8

    def refuse(context):
        fake_server.refuse(context, grpc.StatusCode.UNAVAILABLE, "going down", reason="DRAINING", retry_after=0.001)

    fake.refuse_unread = refuse
    with pytest.raises(svdserve.Unavailable, match="going down") as refused:
        call(fake, "svdvals", a, settings=dict(piece_bytes=64 << 20))
    assert (refused.value.reason, refused.value.retry_after) == ("DRAINING", 0.001)


# --- large matrices -----------------------------------------------------------------------------

def of_step(step, **fields):
    def tamper(message):
        if message.WhichOneof("step") == step:
            for name, value in fields.items():
                setattr(getattr(message, step), name, value)

    return tamper


LARGE_LIES = {
    "another operand": (of_step("accepted", operand_bytes=1), "it accepts 1 bytes"),
    "other results": (of_step("accepted", result_bytes=2**60), f"results of {2**60}"),
    "no chunks": (of_step("accepted", chunk_bytes=0), "chunks of 0 bytes"),
    "values": (of_step("summary", values=2**60), f"{2**60} values"),
    "columns of U": (of_step("summary", left_columns=1), "1 columns of U"),
    "rows of V^H": (of_step("summary", right_rows=0), "0 rows of V"),
    "sweeps": (of_step("summary", sweeps=-1), "-1 sweeps"),
    "members": (of_step("summary", members=-1), "-1 devices"),
    "rotations": (of_step("summary", rotations=-1), "-1 rotations"),
    "proper rotations": (of_step("summary", proper_rotations=901), "901 of them proper"),
    "a status of small matrices": (of_step("summary", status=1), "status of a small matrix"),
    "a status of small general matrices": (of_step("summary", status=5), "status of a small matrix"),
    "a certificate": (lambda message: message.HasField("summary") and message.summary.certificate.SetInParent(),
                      "none was asked for"),
}


@both
@pytest.mark.parametrize("lie", LARGE_LIES)
def test_a_large_reply_to_another_question_is_invalid(fake, call, rng, lie):
    fake.limits["max_values"] = 32
    tamper, words = LARGE_LIES[lie]
    fake.large.tamper = tamper
    with pytest.raises(svdserve.Internal, match="the server's reply is invalid: .*" + words):
        call(fake, "svd", rng.standard_normal((40, 36)), False)
    assert len(fake.large.opens) == 1


@both
@pytest.mark.parametrize("number, status", [(0, 0), (2, 2), (3, 3), (99, 255), (256, 255), (-1, 255)])
def test_the_status_of_a_large_matrix(fake, call, rng, number, status):
    fake.limits["max_values"] = 32
    fake.large.tamper = of_step("summary", status=number)
    result = call(fake, "svd", rng.standard_normal((40, 36)), False)
    assert (int(result.status), result.summaries[0].status) == (status, status)


def repeated(step):
    """A server that sends each message of a kind twice."""
    whole = fake_server.Large.serve

    class Repeating(fake_server.Large):
        def serve(self, requests, context):
            for message in whole(self, requests, context):
                yield from [message] * (2 if message.WhichOneof("step") == step else 1)

    return Repeating()


@both
@pytest.mark.parametrize("step, words", [("accepted", "it accepts the matrix twice"), ("summary", "after the summary"),
                                         ("factor_chunk", "it has bytes 0 ..")])
def test_nothing_comes_twice(fake, call, rng, step, words):
    fake.limits["max_values"] = 32
    fake.large = repeated(step)
    with pytest.raises(svdserve.Internal, match=words):
        call(fake, "svd", rng.standard_normal((40, 36)), False)


@both
def test_results_without_the_operand_are_invalid(fake, call, rng):
    class Oracle(fake_server.Large):
        def serve(self, requests, context):
            first = next(requests).open
            values, left, right = fake_server.sizes(first)
            results = 8 * (values + left * first.rows + right * first.cols)
            yield self.reply(accepted=dict(chunk_bytes=64, operand_bytes=8 * first.rows * first.cols,
                                           result_bytes=results))
            yield self.reply(summary=dict(values=values, left_columns=left, right_rows=right))

    fake.limits["max_values"] = 32
    fake.large = Oracle()
    with pytest.raises(svdserve.Internal, match="an operand that was not sent completely"):
        call(fake, "svd", rng.standard_normal((400, 360)), False)


@both
def test_progress_stays_between_0_and_1(fake, call, rng):
    fake.limits["max_values"] = 32
    fake.large.progress = [_proto.message_class("svdserve.v1.LargeProgress")(stage=6, fraction=f)
                           for f in (float("nan"), -1.0, 2.0, float("inf"), 0.5)]
    told = []
    call(fake, "svd", rng.standard_normal((40, 36)), False, progress=told.append)
    assert [p.fraction for p in told if p.stage == "sweep"] == [0, 0, 1, 1, 0.5]


# --- how long a server can make a client wait ---------------------------------------------------

@both
def test_a_server_cannot_make_a_client_wait_for_ever(fake, call):
    fake.refuse_unread = lambda context: fake_server.refuse(
        context, grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED_BYTES", retry_after=86400)
    with pytest.raises(svdserve.Overloaded) as refused:
        call(fake, "svdvals", EYES)
    assert refused.value.retry_after == 86400


def test_the_longest_delay_that_is_waited_for():
    policy = svdserve.RetryPolicy(max_server_delay=10)
    assert 10 <= policy.pause(svdserve.Overloaded("full", retry_after=10), 1, None) <= 12.5
    assert policy.pause(svdserve.Overloaded("full", retry_after=10.1), 1, None) is None
    assert policy.pause(svdserve.Unavailable("down", retry_after=1e300), 1, None) is None
