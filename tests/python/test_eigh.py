"""eigh and eigvalsh of small matrices: the results of numpy.linalg.eigh, in batches, from a server."""

import asyncio

import numpy as np
import pytest

import fake_server
import svdserve
from svdserve import MatrixStatus, _proto
from test_large import check_eigh, either, hermitian  # noqa: F401  # a fixture
from test_svd import DTYPES, close, matrices

SHAPES = [(3, 4, 4), (2, 3, 6, 6), (1, 1), (5, 1, 1), (9, 9), (3, 32, 32), (2, 33, 33), (2, 128, 128), (2, 200, 200)]


def check_bounds(a, w, v):
    """The bounds of the contract: 10 n u |A| for the residual and the eigenvalues, 10 n u for the orthogonality."""
    bound = 10 * a.shape[-1] * np.finfo(a.dtype).eps / 2
    wide = a.astype("c16")
    norm = np.linalg.norm(wide, axis=(-2, -1))
    assert (np.linalg.norm(wide @ v - v * w[..., None, :].astype("f8"), axis=(-2, -1)) <= bound * norm).all()
    gram = v.conj().swapaxes(-1, -2).astype("c16") @ v
    assert (np.linalg.norm(gram - np.eye(a.shape[-1]), axis=(-2, -1)) <= bound).all()
    expected = np.linalg.eigvalsh(wide)
    assert (np.abs(w - expected) <= (bound + 1e-14) * np.abs(expected).max(-1, keepdims=True)).all()


# --- against a server that the test directs -----------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "u"])
def test_a_stack_is_a_batch(either, fake, rng, dtype, uplo):  # noqa: F811
    a = hermitian(rng, 2, 3, 4, dtype=dtype)
    result = either.eigh(a, uplo, fix_phases=True, certificate="matrix", max_sweeps=9)
    check_eigh(a, result)
    assert result.status.shape == (2, 3) and result.summaries == ()
    assert result.certificate.residual == 1e-16 and result.certificate.each_matrix.shape == (2, 3, 3)
    (request,) = fake.requests
    assert isinstance(request, _proto.EigendecomposeRequest) and not fake.large.opens
    options = request.options
    assert (request.matrices.rows, request.matrices.cols, request.matrices.count) == (4, 4, 6)
    assert options.problem == _proto.EIGEN_PROBLEMS["HERMITIAN"] and options.method == _proto.METHODS["AUTO"]
    assert options.triangle == _proto.TRIANGLES["LOWER" if uplo == "L" else "UPPER"]
    assert options.vectors == _proto.EIGENVECTORS["RIGHT"] and options.fix_phases and options.max_sweeps == 9
    assert fake.announced == [str(request.ByteSize())]


def test_eigenvalues_alone(either, fake, rng):  # noqa: F811
    a = hermitian(rng, 5, 3)
    w = either.eigvalsh(a)
    assert close(w, np.linalg.eigvalsh(a), a) and w.flags.writeable
    assert fake.requests[0].options.vectors == _proto.EIGENVECTORS["NONE"]


def test_column_major_operands(either, fake, rng):  # noqa: F811
    a = hermitian(rng, 4, 3, dtype="c16").swapaxes(-1, -2)
    check_eigh(a, either.eigh(a))
    assert fake.requests[0].matrices.memory_order == _proto.MEMORY_ORDERS["COLUMN_MAJOR"]


def test_pieces_are_joined(fake, rng):
    a = hermitian(rng, 500, 4, dtype="c8")
    with svdserve.Client(fake.address, piece_bytes=1 << 12) as client:
        check_eigh(a, client.eigh(a))
    assert len(fake.requests) > 10


def test_what_only_large_matrices_have(fake, rng):
    a = hermitian(rng, 3, 5)
    with svdserve.Client(fake.address) as client:
        with pytest.raises(svdserve.InvalidArgument, match="small") as refused:
            client.eigh(a, pivot_strategy="recursive")
        assert refused.value.field == "options.pivot_strategy"
        with pytest.raises(svdserve.InvalidArgument, match="^fix_phases: is for batches; accuracy='relative' makes") as refused:
            client.eigh(a, accuracy="relative", fix_phases=True)
        assert refused.value.field == "options.fix_phases"
        with pytest.raises(svdserve.InvalidArgument, match="for batches; method='factored' makes each matrix a call"):
            client.eigh(a, method="factored", fix_phases=True)
        with pytest.raises(svdserve.InvalidArgument, match="'auto', 'factored' or 'jacobi'") as refused:
            client.eigh(a, accuracy="relative", method="tridiagonal")
        assert refused.value.field == "options.method"
        with pytest.raises(ValueError, match="accuracy: must be 'absolute' or 'relative', but is 'high'"):
            client.eigvalsh(a, accuracy="high")
        assert not fake.requests and not fake.large.opens
        client.eigh(a[0], pivot_strategy="recursive")
        client.eigh(a[0], method="factored")
        client.eigh(a[0], accuracy="relative", method="jacobi")
        assert len(fake.large.opens) == 3 and fake.large.opens[-1].options.method == _proto.METHODS["JACOBI"]


def test_methods_of_eigenproblems(either, fake, rng):  # noqa: F811
    a = hermitian(rng, 3, 5)
    for call in (either.eigh, either.eigvalsh):
        for method in ("qr", "bidiagonal", "bisection", "lanczos"):
            with pytest.raises(svdserve.InvalidArgument) as refused:
                call(a, method=method)
            assert "must be one of 'auto', 'jacobi', 'tridiagonal', 'factored', but is" in str(refused.value)
            assert refused.value.field == "options.method"
    assert fake.infos == 0


def test_one_array_is_taken(either, fake, rng):  # noqa: F811
    a, b = hermitian(rng, 4, 3), hermitian(rng, 2, 5)
    with pytest.raises(TypeError, match="a: lists of stacks are for svd and svdvals; pass one array"):
        either.eigh([a, b])
    for verb in (either.eigh, either.eigvalsh):
        with pytest.raises(TypeError, match="a: must be array_like, but is an iterator; pass one array"):
            verb(x for x in a)
    assert not fake.requests
    check_eigh(a, either.eigh(list(a)))


def test_messages_about_out_speak_of_eigenvalues(either, fake, rng):  # noqa: F811
    a = hermitian(rng, 4, 3)
    for out, match in (((np.empty(3), None), "the array for eigenvalues is float64"),
                       ((None, a), "the array for eigenvectors overlaps the matrices")):
        with pytest.raises(ValueError, match=match):
            either.eigh(a, out=out)


def test_the_status_of_eigenvalues(either, fake, rng):  # noqa: F811
    a = hermitian(rng, 4, 3)
    for accuracy in ("absolute", "relative"):
        w, status = either.eigvalsh(a, accuracy=accuracy, return_status=True)
        assert close(w, np.linalg.eigvalsh(a), a) and status.tolist() == [MatrixStatus.OK] * 4


def test_a_reply_that_does_not_fit(fake, rng):
    def short(request, context):
        reply = fake_server.decompose(request)
        reply.vectors = reply.vectors[8:]
        return reply

    fake.handler = short
    with svdserve.Client(fake.address) as client, pytest.raises(svdserve.Error, match="bytes of left_vectors"):
        client.eigh(hermitian(rng, 3))


# --- against the real server --------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_numpy(client, rng, shape, dtype):
    a = hermitian(rng, *shape[:-1], dtype=dtype)
    result = client.eigh(a)
    check_eigh(a, result)
    check_bounds(a, *result)
    assert (result.status == MatrixStatus.OK).all() and result.certificate is None and result.summaries == ()
    w = client.eigvalsh(a, "U")
    assert w.shape == shape[:-1] and close(w, result.eigenvalues, a)


@pytest.mark.parametrize("shape", [(0, 4, 4), (3, 0, 0), (0, 0)])
def test_nothing_to_compute(client, shape):
    w, v = client.eigh(np.zeros(shape))
    expected = np.linalg.eigh(np.zeros(shape))
    assert (w.shape, v.shape) == (expected[0].shape, expected[1].shape)


@pytest.mark.parametrize("dtype, computed", [("i4", "f8"), ("?", "f8"), ("u1", "f8"), (">f4", "f4"), (">c16", "c16")])
def test_other_types(client, dtype, computed):
    a = np.array([[2, 1], [1, 0]]).astype(dtype)
    w, v = client.eigh(a)
    assert v.dtype == np.dtype(computed) and w.dtype == np.zeros(0, computed).real.dtype
    assert close(w, np.linalg.eigvalsh(a.astype(computed)), a.astype(computed))


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_one_triangle_is_read(client, rng, uplo):
    a = matrices(rng, 3, 5, 5, dtype="c16")  # not Hermitian, its diagonal not real
    a[:, *np.nonzero(np.triu(np.ones((5, 5)), 1) if uplo == "L" else np.tril(np.ones((5, 5)), -1))] = np.nan
    w, v = client.eigh(a, uplo)
    expected = np.linalg.eigvalsh(np.nan_to_num(a), uplo)
    assert np.abs(w - expected).max() < 1e-13 and np.isfinite(v).all()


def test_a_matrix_that_is_not_finite_leaves_its_neighbours_alone(client, rng):
    a = hermitian(rng, 4, 3)
    a[2, 1, 0] = np.nan
    w, v = result = client.eigh(a)
    assert result.status.tolist() == [0, 0, MatrixStatus.NON_FINITE, 0]
    assert np.isnan(w[2]).all() and np.isnan(v[2]).all()
    assert client.eigvalsh(a, return_status=True)[1].tolist() == result.status.tolist()
    check_bounds(a[:2], w[:2], v[:2])


def test_the_certificate(client, rng):
    a = hermitian(rng, 7, 6, dtype="c8")
    result = client.eigh(a, certificate="matrix")
    assert 0 < result.certificate.residual < 60 * np.finfo("f4").eps
    assert 0 < result.certificate.left_orthogonality < 60 * np.finfo("f4").eps
    assert result.certificate.each_matrix.shape == (7, 3)
    assert result.certificate.each_matrix[:, 0].max() == result.certificate.residual


def test_fixed_phases(client, rng):
    _, v = client.eigh(hermitian(rng, 9, 5, dtype="c16"), fix_phases=True)
    largest = np.take_along_axis(v, np.abs(v).argmax(-2, keepdims=True), -2)
    assert (largest.real > 0).all() and np.abs(largest.imag).max() < 1e-15


def test_coroutines(address, rng):
    a, b = hermitian(rng, 4, 3), hermitian(rng, 2, 5, dtype="c8")

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.eigh(a), client.eigh(b, "U"), client.eigvalsh(a))

    first, second, values = asyncio.run(ask())
    check_eigh(a, first)
    check_eigh(b, second)
    assert close(values, first.eigenvalues, a)
