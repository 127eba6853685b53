"""Large factors: what the client makes of the protocol's good and bad turns, against a server that the test directs."""

import asyncio
import gc
import signal
import subprocess
import sys
import time
from concurrent import futures

import grpc
import numpy as np
import pytest

import fake_server
import svdserve
from svdserve import MatrixStatus, _proto
from test_svd import check, close, matrices

DTYPES = ["f4", "f8", "c8", "c16"]
STRATEGIES = [name.lower() for name, number in _proto.PIVOT_STRATEGIES.items() if number]


@pytest.fixture(autouse=True)
def matrices_of_order_40_are_large(fake):
    fake.limits["max_values"] = 32


@pytest.fixture
def far(fake):
    """A client of the fake."""
    with svdserve.Client(fake.address, retry=svdserve.RetryPolicy(initial_backoff=0.001)) as client:
        yield client


class Coroutines:
    """AsyncClient with Client's face, so that a test is for both."""

    def __init__(self, address, **options):
        self._address, self._options = address, options

    def __getattr__(self, name):
        async def call(*args, **kwargs):
            async with svdserve.AsyncClient(self._address, **self._options) as client:
                return await getattr(client, name)(*args, **kwargs)

        return lambda *args, **kwargs: asyncio.run(call(*args, **kwargs))


@pytest.fixture(params=["blocking", "asyncio"])
def either(request, fake):
    retry = svdserve.RetryPolicy(initial_backoff=0.001)
    if request.param == "asyncio":
        yield Coroutines(fake.address, retry=retry)
    else:
        with svdserve.Client(fake.address, retry=retry) as client:
            yield client


# --- what is sent and what comes back -----------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(40, 40), (33, 70), (90, 35), (1, 20000)])
@pytest.mark.parametrize("full", [True, False])
def test_as_numpy(either, fake, rng, shape, dtype, full):
    full = full and shape[1] < 1000
    a = matrices(rng, *shape, dtype=dtype)
    result = either.svd(a, full)
    check(a, result, full)
    assert result.status == MatrixStatus.OK and result.certificate is None
    assert fake.large.uploads == [a.tobytes()] and not fake.requests


@pytest.mark.parametrize("chunk_bytes", [16, 1000, 4096, 1 << 20, 1 << 30])
def test_chunks_are_as_large_as_the_server_takes_and_no_larger_than_a_mebibyte(either, fake, rng, chunk_bytes):
    fake.large.chunk_bytes = chunk_bytes
    a = matrices(rng, 600, 300) if chunk_bytes > 4096 else matrices(rng, 34, 40)
    check(a, either.svd(a, False), False)
    assert max(fake.large.chunk_sizes) == min(chunk_bytes // 8 * 8, a.nbytes, 1 << 20)
    assert sum(fake.large.chunk_sizes) == a.nbytes


def layouts(a, folder):
    """The same matrix as memory may hold it, and whether it can be sent from where it is, column by column."""
    strided = np.zeros((2 * a.shape[0], 3 * a.shape[1]), a.dtype)
    strided[::2, ::3] = a
    mapped = np.lib.format.open_memmap(folder / "a.npy", "w+", a.dtype, a.shape)
    mapped[:] = a
    mapped.flush()
    yield np.asfortranarray(a), True
    yield strided[::2, ::3], False
    yield a[::-1, ::-1].copy()[::-1, ::-1], False
    yield a.astype(a.dtype.newbyteorder(">")), False
    yield np.load(folder / "a.npy", mmap_mode="r"), False


@pytest.mark.parametrize("shape, chunk_bytes", [((40, 50), 1 << 20), ((40, 50), 72), ((40, 50), 1200)])
def test_layouts(far, fake, rng, shape, chunk_bytes, tmp_path):
    fake.large.chunk_bytes = chunk_bytes
    a = matrices(rng, *shape)
    for operand, by_columns in layouts(a, tmp_path):
        check(a, far.svd(operand, False), False)
        assert fake.large.uploads[-1] == (a.T if by_columns else a).tobytes()
        assert fake.large.opens[-1].memory_order == 1 + by_columns


def test_integers_become_double(far, fake, rng):
    a = rng.integers(-9, 9, (40, 36))
    check(a.astype(float), far.svd(a), True)
    assert fake.large.opens[0].data_type == 2


def test_the_options_arrive(either, fake, rng):
    a = matrices(rng, 50, 40)
    either.svd(a, False, method="jacobi", tolerance=1e-9, max_sweeps=12, pivot_strategy="Row_Cyclic",
               block_variant="full_block", certificate=True)
    opened = fake.large.opens[0]
    assert (opened.rows, opened.cols, opened.data_type, opened.signature) == (50, 40, 2, b"")
    o = opened.options
    assert (o.method, o.vectors, o.tolerance, o.max_sweeps) == (4, 2, 1e-9, 12)
    assert (o.pivot_strategy, o.block_variant, o.certificate) == (4, 2, True)
    either.svdvals(a, tolerance=1e-9)
    o = fake.large.opens[1].options
    assert (o.method, o.vectors, o.tolerance, o.pivot_strategy, o.certificate) == (1, 1, 1e-9, 0, False)
    for number, name in enumerate(STRATEGIES, 1):
        either.svd(a, compute_uv=False, pivot_strategy=name)
        assert fake.large.opens[-1].options.pivot_strategy == number


def test_the_values_alone(either, rng):
    a = matrices(rng, 60, 34, dtype="c8")
    expected = np.linalg.svd(a, compute_uv=False)
    for values in (either.svdvals(a), either.svd(a, compute_uv=False)):
        assert values.dtype == np.float32 and close(values, expected, a)
    values, status = either.svdvals(a, return_status=True)
    assert close(values, expected, a) and status == MatrixStatus.OK


def test_a_stack_goes_matrix_by_matrix(either, fake, rng):
    a = matrices(rng, 2, 3, 34, 35)
    result = either.svd(a, certificate="matrix")
    check(a, result, True)
    assert len(fake.large.opens) == 6 == len(result.summaries) and result.status.shape == (2, 3)
    assert result.certificate == svdserve.Certificate(1e-15, 2e-15, 3e-15, result.certificate.each_matrix)
    assert (result.certificate.each_matrix == [1e-15, 2e-15, 3e-15]).all()
    assert result.certificate.each_matrix.shape == (2, 3, 3)


def test_small_and_large_in_a_list(either, fake, rng):
    stacks = [matrices(rng, 5, 4, 4), matrices(rng, 40, 33, dtype="c16"), matrices(rng, 0, 50, 50), matrices(rng, 2, 3)]
    for a, result in zip(stacks, either.svd(stacks, False)):
        if a.size:
            check(a, result, False)
    assert len(fake.large.opens) == 1 and len(fake.requests) == 1


def test_what_the_summary_says(either, rng):
    (summary,) = either.svd(matrices(rng, 40, 40), certificate=True).summaries
    assert summary == svdserve.LargeSummary(
        status=MatrixStatus.OK, method="jacobi", device="fake:0", sweeps=7, rotations=900, proper_rotations=800,
        upload_seconds=1, queue_seconds=2, compute_seconds=3, download_seconds=4,
        phases=(svdserve.Phase("qr", 0.5, 1e6),), certificate=svdserve.Certificate(1e-15, 2e-15, 3e-15), members=1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(60, 40), (2, 35, 50)])
def test_leading_triplets(either, fake, rng, shape, dtype):
    a = matrices(rng, *shape, dtype=dtype)
    k = min(shape[-2:])
    whole = np.linalg.svd(a, full_matrices=False)
    for full in (True, False):  # as for small ones it does not matter
        u, s, vh = result = either.svd(a, full, top_k=3, certificate=True)
        assert (u.shape, s.shape, vh.shape) == (shape[:-1] + (3,), shape[:-2] + (3,), shape[:-2] + (3, shape[-1]))
        assert (u.dtype, s.dtype, vh.dtype) == (whole[0].dtype, whole[1].dtype, whole[2].dtype)
        assert close(s, whole[1][..., :3], a)
        assert all(r.subspace_steps == 4 and r.method == "auto" for r in result.summaries)
    assert close(either.svd(a, compute_uv=False, top_k=k), whole[1], a)
    assert {o.options.top_k for o in fake.large.opens} == {3, k}


def test_more_triplets_than_there_are(far, fake, rng):
    with pytest.raises(svdserve.InvalidArgument, match="top_k"):
        far.svd(matrices(rng, 40, 50), top_k=41)
    assert not fake.large.opens


def test_a_summary_of_negative_steps_is_an_error(either, fake, rng):
    fake.large.tamper = lambda m: setattr(m.summary, "subspace_steps", -1) if m.HasField("summary") else None
    with pytest.raises(svdserve.Error, match="steps of a subspace"):
        either.svd(matrices(rng, 40, 40))


def test_what_did_not_converge_has_results_and_a_status(either, fake, rng):
    fake.large.status = "NOT_CONVERGED"
    a = matrices(rng, 40, 40)
    result = either.svd(a)
    assert result.status == MatrixStatus.NOT_CONVERGED
    check(a, result, True)
    assert either.svdvals(a, return_status=True)[1] == MatrixStatus.NOT_CONVERGED


def test_a_server_without_large_factors_refuses_as_ever(far, fake, rng):
    fake.limits["max_large_bytes"] = 0
    far.svd(matrices(rng, 40, 40))
    assert len(fake.requests) == 1 and not fake.large.opens


# --- results in the caller's memory -------------------------------------------------------------

def outputs(folder, m, n, dtype, order):
    k = min(m, n)
    real = np.zeros(0, dtype).real.dtype
    return tuple(np.lib.format.open_memmap(folder / f"{name}{order}.npy", "w+", kind, shape, order == "F")
                 for name, kind, shape in (("u", dtype, (m, k)), ("s", real, (k,)), ("vh", dtype, (k, n))))


@pytest.mark.parametrize("operand_order", "CF")
@pytest.mark.parametrize("result_order", "CF")
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_results_go_to_the_callers_arrays(either, rng, tmp_path, operand_order, result_order, dtype):
    a = np.asarray(matrices(rng, 45, 38, dtype=dtype), order=operand_order)
    out = outputs(tmp_path, 45, 38, np.dtype(dtype), result_order)
    result = either.svd(a, False, out=out)
    assert all(mine is given for mine, given in zip(result, out))
    check(a, [np.asarray(x) for x in out], False)
    for x in out:
        x.flush()
        assert np.array_equal(np.load(x.filename), x)


def test_small_results_go_there_too(far, rng):
    a = matrices(rng, 3, 5, 4)
    u = np.empty((3, 5, 4))
    result = far.svd(a, False, out=(u, None, None))
    assert result.U is u and result.S.flags.writeable
    check(a, result, False)
    s = np.empty((3, 4), order="F")
    assert far.svd(a, compute_uv=False, out=s) is s and close(s, result.S, a)


@pytest.mark.parametrize("out", [
    np.empty((40, 36)), (np.empty((40, 36)),) * 2, (np.empty((40, 40)), None, None), (np.empty((40, 36), "f4"), None, None),
    (None, [0.0] * 36, None), (None, np.broadcast_to(0.0, (36,)), None)])
def test_arrays_that_do_not_fit_are_refused_before_anything_is_sent(far, fake, rng, out):
    with pytest.raises(ValueError, match="out"):
        far.svd(matrices(rng, 40, 36), False, out=out)
    assert fake.infos == 0


def overlapping():
    """Operands and arrays for their results that have memory in common, and what is said of it."""
    buffer = np.zeros((3, 200, 200))
    a, other, third = buffer
    yield a[:40, :40], (a[:40, :40], None, None), "U overlaps the matrices"
    yield a[:40, :40], (None, None, a[39:79, 39:79]), "Vh overlaps the matrices"
    yield a[:40, :40].T, (None, a[0, :40], None), "S overlaps the matrices"
    yield a[:40, :40], (other[:40, :40], third[0, :40], other[39:79, 39:79]), "U and Vh"
    yield a[:40, :40], (other[:40, :40], other[5, :40], None), "U and S overlap"
    yield buffer[:, :4, :4], (np.zeros((3, 4, 4)), buffer[:, 0, :4], None), "S overlaps the matrices"


@pytest.mark.parametrize("case", range(6))
def test_arrays_that_overlap_are_refused_before_anything_is_sent(far, fake, case):
    a, out, why = list(overlapping())[case]
    before = a.copy()
    with pytest.raises(ValueError, match=why):
        far.svd(a, False, out=out)
    assert fake.infos == 0 and np.array_equal(a, before)


def test_neighbours_in_one_buffer_do_not_overlap(either, rng):
    buffer = np.zeros((40, 160))
    a, u, vh, s = buffer[:, :40], buffer[:, 40:80], buffer[:, 80:120], buffer[::-1, 120]
    a[:] = matrices(rng, 40, 40)
    check(a.copy(), either.svd(a, False, out=(u, s, vh)), False)
    check(a, (u, s, vh), False)


def test_options_of_signatures(far, fake):
    g, j = np.eye(4), [1, 1, -1, 1]
    for call, methods in ((far.hsvd, "'auto', 'jacobi'"), (far.eigh_factored, "'auto', 'factored', 'jacobi'")):
        with pytest.raises(svdserve.InvalidArgument, match=f"^method: must be one of {methods}, but is 'tridiagonal'"):
            call(g, j, method="tridiagonal")
        with pytest.raises(svdserve.InvalidArgument, match="^certificate: must be a bool, but is 'matrix'"):
            call(g, j, certificate="matrix")
    assert not fake.large.opens


def test_hsvd_refuses_what_overlaps_too(far, fake):
    g = np.eye(4)
    with pytest.raises(ValueError, match="overlaps the matrices"):
        far.hsvd(g, [1, 1, -1, 1], out=(g, None, None))
    assert fake.infos == 0


# --- the hyperbolic decomposition ---------------------------------------------------------------

def check_hyperbolic(g, j, result):
    u, s, vh = result
    n = g.shape[1]
    assert (u.shape, s.shape, vh.shape) == (g.shape, (n,), (n, n)) and u.dtype == vh.dtype == g.dtype
    scale = np.linalg.norm(vh) ** 2
    assert close((u * s) @ vh, g, g) and close(u.conj().T @ u, np.eye(n), g)
    assert np.abs(vh @ np.diag(j) @ vh.conj().T - np.diag(j)).max() < scale * 200 * np.finfo(s.dtype).eps
    for sign in (1, -1):
        assert (np.diff(s[j == sign]) <= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("m, n", [(40, 40), (50, 35), (5, 3), (1, 1)])
def test_hsvd(either, fake, rng, m, n, dtype, order):
    q = np.linalg.qr(matrices(rng, m, n, dtype=dtype))[0]  # well-conditioned, or the fake would not do
    g = np.asarray(q + 0.1 * matrices(rng, m, n, dtype=dtype), dtype, order)
    j = rng.choice([1, -1], n)
    check_hyperbolic(g, j, either.hsvd(g, j))
    assert fake.large.opens[0].signature == bytes(1 if x > 0 else 255 for x in j)
    assert close(either.hsvd(g, j.astype(float), compute_uv=False), fake_server.hyperbolic(g, j)[1], g)


@pytest.mark.parametrize("j", [[1, 0, -1], [1, 2, 1], [1, np.nan, 1], [], [[1, 1, 1]], 1, [1, -1], [1] * 4])
def test_what_is_no_signature_is_refused_here(far, fake, j):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        far.hsvd(np.eye(3), j)
    assert refused.value.field == "open.signature" and not fake.large.opens


@pytest.mark.parametrize("g", [np.eye(3)[0], np.zeros((2, 3, 3))])
def test_hsvd_is_of_one_matrix(far, g):
    with pytest.raises(np.linalg.LinAlgError):
        far.hsvd(g, [1, 1, -1])


# --- eigenvalues and eigenvectors ---------------------------------------------------------------

def hermitian(rng, *shape, dtype="f8"):
    a = matrices(rng, *shape, shape[-1], dtype=dtype)
    return (a + a.conj().swapaxes(-1, -2)).astype(dtype)


def check_eigh(a, result):
    w, v = result
    assert w.shape == a.shape[:-1] and v.shape == a.shape and v.dtype == a.dtype and w.dtype == a.real.dtype
    assert (np.diff(w) >= 0).all()
    assert close(a @ v, v * w[..., None, :], a) and close(v.conj().swapaxes(-1, -2) @ v, np.eye(a.shape[-1]), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n, accuracy, method", [(40, "absolute", "AUTO"), (40, "relative", "FACTORED"),
                                                 (3, "relative", "FACTORED"), (1, "relative", "FACTORED")])
def test_eigh_of_a_large_matrix(either, fake, rng, n, accuracy, method, dtype, order):
    a = np.asarray(hermitian(rng, n, dtype=dtype), order=order)
    result = either.eigh(a, accuracy=accuracy, certificate=True)
    check_eigh(a, result)
    opened = fake.large.opens[0]
    assert (opened.problem, opened.triangle) == (_proto.LARGE_PROBLEMS["HERMITIAN"], _proto.TRIANGLES["LOWER"])
    assert opened.options.method == _proto.METHODS[method] and not fake.requests
    assert result.certificate.residual == 1e-15 and result.status == MatrixStatus.OK
    assert (result.summaries[0].rank, result.summaries[0].factor_condition) == (n, 2.5)
    assert close(either.eigvalsh(a, accuracy=accuracy), result.eigenvalues, a)


@pytest.mark.parametrize("accuracy", ["absolute", "relative"])
@pytest.mark.parametrize("uplo", ["l", "u", "L", "U"])
def test_eigh_reads_the_triangle_that_is_named(either, fake, rng, uplo, accuracy):
    a = matrices(rng, 5, 5)
    assert close(either.eigvalsh(a, uplo, accuracy=accuracy), np.linalg.eigvalsh(a, uplo), a)


def test_eigh_of_a_stack_of_large_matrices(either, fake, rng):
    a = hermitian(rng, 2, 3, 4)
    result = either.eigh(a, accuracy="relative")
    check_eigh(a, result)
    assert result.status.shape == (2, 3) and len(result.summaries) == 6
    assert either.eigvalsh(np.zeros((0, 4, 4))).shape == (0, 4) and either.eigvalsh(np.zeros((0, 0))).shape == (0,)


@pytest.mark.parametrize("named, is_large", [(6, False), (5, True), (0, False)])
def test_hermitian_batches_have_a_limit_of_their_own(either, fake, rng, named, is_large):
    fake.limits.update(max_values=8, max_hermitian_order=named)  # 0: an older server
    a = hermitian(rng, 2, 6)
    check_eigh(a, either.eigh(a))
    assert len(fake.large.opens) == 2 * is_large and len(fake.requests) == (not is_large)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh_factored(either, fake, rng, dtype):
    g, j = matrices(rng, 9, 5, dtype=dtype), rng.choice([1, -1], 5)
    result = either.eigh_factored(g, j)
    product = ((g * j) @ g.conj().T).astype(dtype)
    check_eigh(product, result)
    assert fake.large.opens[0].problem == _proto.LARGE_PROBLEMS["HERMITIAN_FACTOR"]


def test_eigh_writes_to_the_callers_arrays(far, rng):
    a, w, v = hermitian(rng, 6), np.empty(6), np.empty((6, 6))
    for accuracy in ("absolute", "relative"):
        result = far.eigh(a, accuracy=accuracy, out=(w, v))
        assert result.eigenvalues is w or np.shares_memory(result.eigenvalues, w)
        check_eigh(a, (w, v))
    for wrong in (w, (w,), (w[:5], v), (None, a)):
        with pytest.raises(ValueError, match="out"):
            far.eigh(a, out=wrong)


def test_eigh_refuses_as_numpy_does(far, fake):
    for wrong, kind in ((np.zeros(3), np.linalg.LinAlgError), (np.zeros((2, 3)), np.linalg.LinAlgError)):
        with pytest.raises(kind):
            far.eigh(wrong)
    for uplo in ("lower", "", None):
        with pytest.raises(ValueError, match="UPLO"):
            far.eigvalsh(np.eye(2), uplo)
    with pytest.raises(svdserve.InvalidArgument) as refused:
        far.eigh_factored(np.eye(2), [1, 3])
    assert refused.value.field == "open.signature" and not fake.large.opens


# --- progress -----------------------------------------------------------------------------------

def test_progress(either, fake, rng):
    fake.large.chunk_bytes = 4000
    stages = {"QUEUED": 0.0, "PREPARE": 0.0, "SWEEP": 0.5, "FINISH": 1.0}
    fake.large.progress = [dict(stage=_proto.LARGE_STAGES[s], fraction=f, sweep=3, rotations=20, proper_rotations=10,
                                off_diagonal=0.25) for s, f in stages.items()]
    told = []
    a = matrices(rng, 40, 40)
    check(a, either.svd(a, progress=told.append), True)
    assert [p.stage for p in told if p.stage not in ("upload", "download")] == [s.lower() for s in stages]
    uploads, downloads = [[p.fraction for p in told if p.stage == s] for s in ("upload", "download")]
    # Sent after the last chunk was taken, the server's word may overtake that of the last chunk.
    assert uploads == sorted(uploads) and len(uploads) >= 3 and uploads[0] == 4000 / 12800
    assert downloads == sorted(downloads) and downloads[-1] == 1
    (sweep,) = [p for p in told if p.stage == "sweep"]
    assert (sweep.sweep, sweep.rotations, sweep.proper_rotations, sweep.off_diagonal) == (3, 20, 10, 0.25)
    assert all(x.elapsed_seconds <= y.elapsed_seconds for x, y in zip(told, told[1:]))


def test_small_matrices_have_no_progress(either, rng):
    told = []
    either.svd(matrices(rng, 4, 4), progress=told.append)
    assert not told


@pytest.mark.parametrize("stage", ["upload", "sweep", "download"])
def test_what_progress_raises_ends_the_call(either, fake, rng, stage):
    fake.large.progress = [dict(stage=_proto.LARGE_STAGES["SWEEP"])]

    def fail(progress):
        if progress.stage == stage:
            raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        either.svd(matrices(rng, 400, 400), progress=fail)
    assert len(fake.large.opens) == 1


# --- bad turns ----------------------------------------------------------------------------------

def test_a_refusal_names_the_field_and_no_payload_is_sent(either, fake, rng):
    fake.large.refusals = [dict(code=grpc.StatusCode.INVALID_ARGUMENT, fields={"open.options.tolerance": "is too large"},
                                reason="INVALID_FIELD")]
    with pytest.raises(svdserve.InvalidArgument) as refused:
        either.svd(matrices(rng, 40, 40), tolerance=2)
    assert refused.value.field == "open.options.tolerance" and not fake.large.chunk_sizes


def test_a_refusal_with_a_time_is_tried_again(either, fake, rng):
    fake.large.refusals = [dict(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED_BYTES", retry_after=0.05)] * 2
    a = matrices(rng, 40, 40)
    begin = time.monotonic()
    check(a, either.svd(a), True)
    assert time.monotonic() - begin >= 0.1 and len(fake.large.opens) == 3


def test_a_refusal_without_a_time_is_final(either, fake, rng):
    fake.large.refusals = [dict(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="FACTOR_TOO_LARGE")]
    with pytest.raises(svdserve.Overloaded) as refused:
        either.svd(matrices(rng, 40, 40))
    assert refused.value.reason == "FACTOR_TOO_LARGE" and len(fake.large.opens) == 1


@pytest.mark.parametrize("failure", ["chunk", "commit"])
def test_after_the_first_chunk_nothing_is_tried_again(either, fake, rng, failure):
    """Not even where a unary call would be: the server is gone in the middle."""
    whole = fake_server.Large.serve

    class Failing(fake_server.Large):
        def serve(self, requests, context):
            yield from whole(self, requests, context)
            fake_server.refuse(context, grpc.StatusCode.UNAVAILABLE, reason="DRAINING", retry_after=0.001)

    fake.large = Failing(leave_after=failure)
    with pytest.raises(svdserve.Unavailable):
        either.svd(matrices(rng, 40, 40))
    assert len(fake.large.opens) == 1


def flip(chunk):
    chunk.data = bytes([chunk.data[0] ^ 1]) + chunk.data[1:]
    return chunk


def shift(chunk):
    chunk.offset += 8
    return chunk


def rename(chunk):
    chunk.factor = 9
    return chunk


@pytest.mark.parametrize("damage, code", [(flip, grpc.StatusCode.DATA_LOSS), (shift, grpc.StatusCode.INTERNAL),
                                          (rename, grpc.StatusCode.INTERNAL),
                                          (lambda _: None, grpc.StatusCode.INTERNAL)])
def test_damaged_results_are_no_results(either, fake, rng, damage, code):
    fake.large.damage = damage
    with pytest.raises(svdserve.Error) as raised:
        either.svd(matrices(rng, 40, 40))
    assert raised.value.code == code
    assert (raised.value.reason == "CHUNK_CORRUPTED") == (damage is flip)


@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_an_early_end_is_an_error(either, fake, rng, point):
    fake.large.leave_after = point
    with pytest.raises(svdserve.Error, match="it ends (after 0 of|without a summary)"):
        either.svd(matrices(rng, 40, 40))


def test_results_beyond_what_was_asked_for_are_an_error(either, fake, rng):
    fake.large.damage = lambda chunk: type(chunk)(factor=2, data=b"12345678", crc32c=0)
    with pytest.raises(svdserve.Error, match="not asked for: left_vectors"):
        either.svdvals(matrices(rng, 40, 40))


@pytest.mark.parametrize("arguments, field", [
    (dict(top_k=0), "options.top_k"), (dict(top_k=41), "options.top_k"), (dict(fix_phases=True), "options.fix_phases"),
    (dict(pivot_strategy="zigzag"), "options.pivot_strategy"), (dict(block_variant=1), "options.block_variant"),
    (dict(method="lanczos"), "options.method")])
def test_options_that_large_factors_do_not_have(far, fake, rng, arguments, field):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        far.svd(matrices(rng, 40, 40), **arguments)
    assert refused.value.field == field and not fake.large.opens


def test_options_that_small_matrices_do_not_have(far):
    for name, value in (("pivot_strategy", "recursive"), ("block_variant", "full_block")):
        with pytest.raises(svdserve.InvalidArgument) as refused:
            far.svdvals(np.stack([np.eye(3)] * 2), **{name: value})
        assert refused.value.field == f"options.{name}"


@pytest.mark.parametrize("option", [dict(pivot_strategy="recursive"), dict(block_variant="full_block")])
def test_a_single_small_matrix_with_options_of_large_ones_is_a_large_one(either, fake, rng, option):
    a = matrices(rng, 5, 3)
    assert close(either.svdvals(a, **option), np.linalg.svd(a, compute_uv=False), a)
    check(a, either.svd(a, False, **option), False)
    assert [(o.rows, o.cols) for o in fake.large.opens] == [(5, 3)] * 2
    assert either.svd(a, top_k=1, **option).S.shape == (1,)


# --- cancelling ---------------------------------------------------------------------------------

@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_a_timeout_frees_the_server(either, fake, rng, point):
    fake.large.wait_after = point
    for timeout in (0.5, 2, 8, 32):  # on a busy machine a short one is over before the call has come to that point
        with pytest.raises(svdserve.DeadlineExceeded):
            either.svd(matrices(rng, 40, 40), timeout=timeout)
        if fake.large.reached.is_set():
            break
    assert fake.large.gone.wait(60)


@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_closing_the_client_ends_the_call(fake, rng, point):
    fake.large.wait_after = point
    client = svdserve.Client(fake.address)
    with futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.svd, matrices(rng, 40, 40))
        assert fake.large.reached.wait(60)
        client.close()
        with pytest.raises(svdserve.Cancelled):
            answer.result(60)
    assert fake.large.gone.wait(60)


@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_cancelling_a_coroutine_frees_the_server(fake, rng, point):
    fake.large.wait_after = point

    async def ask():
        async with svdserve.AsyncClient(fake.address) as client:
            task = asyncio.create_task(client.svd(matrices(rng, 40, 40)))
            await asyncio.to_thread(fake.large.reached.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert fake.large.gone.wait(60)


@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_cancelling_a_coroutine_leaves_no_exception_that_nobody_asked_for(fake, rng, point, caplog):
    fake.large.wait_after = point
    complaints = []

    async def ask():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with svdserve.AsyncClient(fake.address) as client:
            for cancels in (1, 2):  # the second time while the first is still seen to
                fake.large.reached.clear()
                task = asyncio.create_task(client.svd(matrices(rng, 40, 40)))
                await asyncio.to_thread(fake.large.reached.wait, 60)
                for _ in range(cancels):
                    task.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await task
        del task
        gc.collect()  # a future complains when it goes
        await asyncio.sleep(0)

    asyncio.run(ask())
    gc.collect()
    assert not complaints and not [r for r in caplog.records if r.name == "asyncio"]


INTERRUPTED = """
import signal, sys, numpy as np, svdserve
signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs this in the background may ignore
client = svdserve.Client(sys.argv[1])
try:
    client.svd(np.eye(400))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("point", ["open", "chunk", "commit", "results"])
def test_ctrl_c_frees_the_server_while_the_program_lives_on(fake, point):
    fake.large.wait_after = point
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, fake.address], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert fake.large.reached.wait(60)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert fake.large.gone.wait(60)
        assert process.stdout.readline() == b"interrupted\n"  # it lives: what freed the server was the call's end
        process.stdin.close()
        assert process.wait(60) == 0
