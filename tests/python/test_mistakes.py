"""The messages of common mistakes, whole: each names what the caller wrote and says what to do."""

import asyncio
import os

import grpc
import numpy as np
import pytest

import svdserve

A = np.arange(60.0).reshape(5, 4, 3)
SQUARE = np.eye(4)
LARGE = np.where(np.arange(700 * 600).reshape(700, 600) == 3 * 600 + 7, np.nan, 1.0)

INVALID = " [INVALID_ARGUMENT, INVALID_FIELD]"
MISTAKES = {
    "an unknown method": (lambda c: c.svd(A, method="jacobbi"), ValueError, "options.method",
        "method: must be one of 'auto', 'bidiagonal', 'bisection', 'jacobi', but is 'jacobbi'" + INVALID),
    "a method that counts no sweeps": (lambda c: c.svdvals(A, max_sweeps=3), ValueError, "options.max_sweeps",
        "max_sweeps: is for JACOBI alone, which counts sweeps" + INVALID),
    "a negative tolerance": (lambda c: c.svd(A, tolerance=-1), ValueError, "options.tolerance",
        "tolerance: must be between 0 and 1 (0: the default)" + INVALID),
    "more triplets than there are": (lambda c: c.svd(A, top_k=9), ValueError, "options.top_k",
        "top_k: must be at most min(m, n) = 3, but is 9" + INVALID),
    "part of a triplet": (lambda c: c.svd(A, top_k=1.5), TypeError, None, "top_k: must be an integer, but is 1.5"),
    "more streams than antennas": (lambda c: c.precoders(A, rank=9), ValueError, "options.mimo.precoder_columns",
        "rank: must be at most min(m, n) = 3, but is 9" + INVALID),
    "no stream": (lambda c: c.precoders(A, rank=0), ValueError, "options.mimo.precoder_columns",
        "rank: must be at least 1, but is 0" + INVALID),
    "more precoders than antennas": (lambda c: c.mimo(A, precoders=9), ValueError, "options.mimo.precoder_columns",
        "precoders: must be between 0 and min(rows, cols) = 3, but is 9" + INVALID),
    "an SNR in words": (lambda c: c.capacity(A, "ten"), ValueError, "options.mimo.snr_db",
        "snr_db: must be a number or a list of numbers, but is 'ten'" + INVALID),
    "capacity without an SNR": (lambda c: c.mimo(A, capacity=True), ValueError, "options.mimo.snr_db",
        "snr_db: must have at least one SNR for capacity, water_filling and stream_snr" + INVALID),
    "nothing asked for": (lambda c: c.mimo(A), ValueError, "options.mimo",
        "mimo: nothing is asked for; give capacity=True or other options" + INVALID),
    "a gradient of nothing": (lambda c: c.mimo(A, gradient=True), ValueError, "options.mimo.gradient",
        "gradient: is of capacity, water_filling and effective_rank; ask for one of them" + INVALID),
    "groups that do not divide": (lambda c: c.capacity(A, 3, group_size=2), ValueError, "options.mimo.group_size",
        "group_size: must divide the last of the leading dimensions (5,), but is 2" + INVALID),
    "a vector": (lambda c: c.svd([1, 2, 3]), np.linalg.LinAlgError, None,
        "1-dimensional array given. Array must be at least two-dimensional"),
    "a matrix that is not square": (lambda c: c.eigh(A), np.linalg.LinAlgError, None,
        "Last 2 dimensions of the array must be square"),
    "elements that are no numbers": (lambda c: c.svd([["a", "b"], ["c", "d"]]), TypeError, None,
        "array type str32 is unsupported in svdserve; convert it to float32, float64, complex64 or complex128"),
    "another triangle": (lambda c: c.eigh(SQUARE, "X"), ValueError, None, "UPLO argument must be 'L' or 'U'"),
    "an array that does not fit": (lambda c: c.svd(A, False, out=(np.zeros((5, 4, 4)), None, None)), ValueError, None,
        "out: the array for U is float64 (5, 4, 4), but must be float64 (5, 4, 3)"),
    "an option of large matrices": (lambda c: c.svd(A, pivot_strategy="recursive"), ValueError, "options.pivot_strategy",
        "pivot_strategy: is not supported for small matrices, and 4x3 is small for this server; leave it out" + INVALID),
    "an option of small matrices": (lambda c: c.svd(np.ones((700, 600)), fix_phases=True), ValueError, "options.fix_phases",
        "fix_phases: is not supported for large matrices, and 700x600 is large for this server or by its options; leave it "
        "out" + INVALID),
    "a large matrix with a NaN": (lambda c: c.svd(LARGE), ValueError, "chunk.data",
        "a: the element in row 3 and column 7 is infinite or NaN [INVALID_ARGUMENT, NON_FINITE]"),
    "one of a stack with a NaN": (lambda c: c.svd(np.stack([np.ones_like(LARGE), LARGE])), ValueError, "chunk.data",
        "matrix [1]: a: the element in row 3 and column 7 is infinite or NaN [INVALID_ARGUMENT, NON_FINITE]"),
    "other numbers than 1 and -1": (lambda c: c.hsvd(SQUARE, [1, 1, 2, -1]), ValueError, "open.signature",
        "j: entry 2 is 2, but must be 1 or -1" + INVALID),
    "a wide g": (lambda c: c.hsvd(SQUARE[:2], [1] * 4), ValueError, "open.signature",
        "g: must have at least as many rows as columns, but is 2x4" + INVALID),
    "a method of others for a large matrix": (
        lambda c: c.svd(np.ones((9, 8)), method="bisection", pivot_strategy="recursive"), ValueError, "open.options.method",
        "method: must be AUTO or JACOBI for a large matrix, but is bisection" + INVALID),
    "a start of another shape": (lambda c: c.eig(SQUARE, start=np.eye(3)), ValueError, None,
        "start: its shape (3, 3) cannot be broadcast to that of a, (4, 4)"),
    "progress that cannot be called": (lambda c: c.svd(SQUARE, progress="bar"), TypeError, None,
        "progress is 'bar', but must be True or callable"),
    "a negative timeout": (lambda c: c.svd(SQUARE, timeout=-1), ValueError, None,
        "timeout is -1, but must be at least 0 seconds; None is for no limit"),
    "a timeout in words": (lambda c: c.svd(SQUARE, timeout="5"), TypeError, None,
        "timeout is '5', but must be seconds or None"),
    "a timeout that passes": (lambda c: c.svd(SQUARE, timeout=0), TimeoutError, None,
        "the timeout passed before the reply arrived [DEADLINE_EXCEEDED]"),
    "the same, large": (lambda c: c.svd(np.eye(2000), timeout=0.01, progress=lambda p: None), TimeoutError, None,
        "the timeout passed before the reply arrived [DEADLINE_EXCEEDED]"),
    "a service that it has not": (lambda c: c.health("nope"), svdserve.Error, None, "unknown service name [NOT_FOUND]"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_message(client, mistake):
    call, kind, field, message = MISTAKES[mistake]
    with pytest.raises(kind) as raised:
        call(client)
    assert str(raised.value) == message
    assert getattr(raised.value, "field", None) == field or field is None


@pytest.mark.parametrize("mistake", [name for name, (_, _, field, _) in MISTAKES.items() if field])
def test_coroutines_say_the_same(address, mistake):
    call, kind, field, message = MISTAKES[mistake]

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            await call(client)

    with pytest.raises(kind) as raised:
        asyncio.run(ask())
    assert (str(raised.value), raised.value.field) == (message, field)


def test_a_closed_client(address):
    client = svdserve.Client(address)
    client.close()
    with pytest.raises(svdserve.Cancelled) as raised:
        client.svd(SQUARE)
    assert str(raised.value) == "the client was closed [CANCELLED]"


ADDRESSES = {
    "localhost": "address is 'localhost', but must be host:port or unix:/path; write 'localhost:50051'",
    "host:": "address is 'host:', but must be host:port or unix:/path; write 'host:50051'",
    "a:1;b:2": "address is 'a:1;b:2', but must have a comma between two servers; write 'a:1,b:2'",
    "a;b:2": "address is 'a;b:2', but must have a comma between two servers; write 'a,b:2'",
    "a:1 b:2": "address is 'a:1 b:2', but must have a comma between two servers; write 'a:1,b:2'",
    "::1": "address is '::1', but must be host:port or unix:/path; write '[::1]:50051'",
    "host:99999": "address is 'host:99999', but its port must be between 1 and 65535",
    "": "address is '', but must be host:port or unix:/path; write '127.0.0.1:50051'",
    "http://127.0.0.1:7": "address is the URL 'http://127.0.0.1:7', but must be host:port; write '127.0.0.1:7'",
    "https://svd.test/x": "address is the URL 'https://svd.test/x', but must be host:port; write 'svd.test:50051' and tls=True",
}


@pytest.mark.parametrize("kind", [svdserve.Client, svdserve.AsyncClient])
@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_no_address_is_refused_at_once(kind, address):
    with pytest.raises(ValueError) as raised:
        kind(address)
    assert str(raised.value) == ADDRESSES[address]


@pytest.mark.parametrize("kind", [svdserve.Client, svdserve.AsyncClient])
def test_the_address_may_be_left_out(kind, monkeypatch):
    monkeypatch.delenv("SVDSERVE_ADDRESS", raising=False)
    assert kind()._settings.address == kind(None)._settings.address == "127.0.0.1:50051"
    monkeypatch.setenv("SVDSERVE_ADDRESS", "unix:/run/svd.sock")
    assert kind()._settings.address == "unix:/run/svd.sock" and kind("a:1")._settings.address == "a:1"
    monkeypatch.setenv("SVDSERVE_ADDRESS", "")  # as svdctl takes it
    assert kind()._settings.address == "127.0.0.1:50051"
    monkeypatch.setenv("SVDSERVE_ADDRESS", "localhost")
    with pytest.raises(ValueError, match="^SVDSERVE_ADDRESS is 'localhost', but must be"):
        kind()
    with pytest.raises(TypeError, match="^address is 50051, but must be a str such as '127.0.0.1:50051', a list of them, or None"):
        kind(50051)


NOBODY = {
    "127.0.0.1:1": "(connection refused); start one with `svdserve --listen=127.0.0.1:1` or svdserve.local(), or name another in Client(address) "
                   "or SVDSERVE_ADDRESS [UNAVAILABLE]",
    "unix:/tmp/svdserve-nobody": "(no such file or directory); start one with `svdserve --listen=unix:/tmp/svdserve-nobody` or svdserve.local(), "
                                 "or name another in Client(address) or SVDSERVE_ADDRESS [UNAVAILABLE]",
}


@pytest.mark.parametrize("address", NOBODY)
@pytest.mark.parametrize("verb", ["svdvals", "health"])
def test_no_server(address, verb):
    assert not os.path.exists("/tmp/svdserve-nobody")
    with svdserve.Client(address, retry=svdserve.RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(ConnectionError) as raised:
            client.health() if verb == "health" else client.svdvals(A)
    assert str(raised.value) == f"no svdserve server responds at {address} {NOBODY[address]}"


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
@pytest.mark.parametrize("details", ["", "{code}", "Deadline Exceeded"])
def test_a_code_is_printed_once(fake, code, details):
    fake.handler = lambda request, context: context.abort(code, details.format(code=code.name))
    with svdserve.Client(fake.address, retry=svdserve.RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(svdserve.Error) as raised:
            client.svdvals(A)
    shown = str(raised.value)
    assert shown.count(raised.value.code.name) == 1 and shown.endswith(f" [{raised.value.code.name}]")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert shown == MISTAKES["a timeout that passes"][3]
