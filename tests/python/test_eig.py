"""eig and eigvals: the results of numpy.linalg.eig, and left eigenvectors as SciPy has them."""

import asyncio

import grpc
import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus, _proto
from test_large import either  # noqa: F401  # a fixture
from test_svd import DTYPES, close, matrices

ORDERS = [1, 2, 3, 10, 50]
NON_SQUARE = [np.zeros(3), np.zeros((2, 3)), np.zeros((4, 3, 2))]


def residuals(a, w, *vectors):
    """Those of right eigenvectors, or of left and right ones, relative to the norm of each matrix."""
    *left, v = vectors
    wide = a.astype("c16")
    norm = np.linalg.norm(wide, axis=(-2, -1))
    norm = np.where(norm == 0, 1, norm)
    found = np.linalg.norm(wide @ v - v * w[..., None, :], axis=(-2, -1)) / norm
    for adjoint in (x.conj().swapaxes(-1, -2) for x in left):
        found = np.maximum(found, np.linalg.norm(adjoint @ wide - w[..., :, None] * adjoint, axis=(-2, -1)) / norm)
    return found


def check_eig(a, result):
    """Small residuals, columns of norm 1 whose largest component is real, and NumPy's shapes and types."""
    w, *vectors = result
    expected = np.linalg.eig(a)
    u = np.finfo(a.dtype).eps / 2
    for mine, theirs in ((w, expected[0]), *((v, expected[1]) for v in vectors)):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    assert (residuals(a, *result) <= 10 * a.shape[-1] * u).all()
    for v in vectors:
        assert np.abs(np.linalg.norm(v.astype("c16"), axis=-2) - 1).max() < 20 * u
        largest = np.take_along_axis(v, np.abs(v).argmax(-2, keepdims=True), -2)
        assert np.abs(largest.imag).max() < 20 * u


def distance(w, expected):
    """The largest distance of any eigenvalue of one matrix to the nearest other one, relative to the largest one."""
    apart = np.abs(np.asarray(w, "c16")[:, None] - np.asarray(expected, "c16"))
    return max(apart.min(0).max(), apart.min(1).max()) / max(np.abs(expected).max(), 1e-300)


def check_pairs(w):
    """The eigenvalues of a real matrix that are not real come in exact conjugate pairs, one next to the other."""
    one, other = w[w.imag != 0].reshape(-1, 2).T
    assert (one == other.conj()).all()


# --- against a server that the test directs -----------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("left", [False, True])
def test_each_matrix_is_a_call(either, fake, rng, dtype, order, left):  # noqa: F811
    a = np.asarray(matrices(rng, 4, 4, dtype=dtype), order=order)
    result = either.eig(a, left, certificate=True)
    assert residuals(a, *result) < 100 * np.finfo(a.dtype).eps
    assert result.status == MatrixStatus.OK and result.certificate.residual == 1e-15
    assert [s.device for s in result.summaries] == ["fake:0"] and len(result) == 2 + left
    (opened,) = fake.large.opens
    assert (opened.problem, opened.options.method) == (_proto.LARGE_PROBLEMS["GENERAL"], _proto.METHODS["AUTO"])
    assert opened.options.vectors == _proto.VECTORS["FULL" if left else "THIN"] and not fake.requests
    assert opened.options.certificate and opened.memory_order == 1 + (order == "F")


def test_eigenvalues_alone(either, fake, rng):  # noqa: F811
    a = matrices(rng, 5, 3, 3, dtype="c8")
    w, status = either.eigvals(a, method="qr", return_status=True)
    assert close(w, np.linalg.eigvals(a), a) and w.dtype == "c8" and status.tolist() == [MatrixStatus.OK] * 5
    assert w.flags.writeable
    assert {o.options.vectors for o in fake.large.opens} == {_proto.VECTORS["NONE"]}
    assert {o.options.method for o in fake.large.opens} == {_proto.METHODS["QR"]} and len(fake.large.opens) == 5


@pytest.mark.parametrize("dtype, computed", [("f4", "f4"), ("f8", "f8"), ("c8", "c8"), ("c16", "c16"), ("i4", "f8"),
                                             ("?", "f8"), ("f2", "f4"), (">f4", "f4"), (">c16", "c16")])
@pytest.mark.parametrize("left", [False, True])
def test_results_are_real_where_all_eigenvalues_are(either, fake, dtype, computed, left):  # noqa: F811
    real, turn = np.array([[1, 1], [1, 0]]), np.array([[0, 1], [0, 0]]) - np.array([[0, 0], [1, 0]])
    w, *vectors = either.eig(real.astype(dtype), left)
    assert {x.dtype for x in (w, *vectors)} == {np.dtype(computed)}
    assert all(x.flags.writeable for x in (w, *vectors))
    assert either.eigvals(real.astype(dtype)).dtype == computed
    if np.dtype(dtype).kind in "fc":
        both = np.stack([real, turn]).astype(dtype)
        wide = np.result_type(computed, "c8")
        assert {x.dtype for x in either.eig(both, left)} == {wide} and either.eigvals(both).dtype == wide


def test_a_matrix_in_an_error_is_named(either, fake, rng):  # noqa: F811
    fake.large.refusals = [dict(code=grpc.StatusCode.INVALID_ARGUMENT, message="entry is NaN", reason="NON_FINITE")]
    with pytest.raises(svdserve.InvalidArgument, match=r"^matrix \[\d, \d\]: entry is NaN") as refused:
        either.eig(matrices(rng, 2, 3, 4, 4))
    assert refused.value.reason == "NON_FINITE"


@pytest.mark.parametrize("shape", [(0, 4, 4), (3, 0, 0), (0, 0), (2, 0, 5, 5)])
@pytest.mark.parametrize("dtype", ["f4", "c16", "i2"])
def test_nothing_to_compute(either, fake, shape, dtype):  # noqa: F811
    a = np.zeros(shape, dtype)
    expected = np.linalg.eig(a)
    w, vl, v = either.eig(a, left=True)
    for mine, theirs in ((w, expected[0]), (vl, expected[1]), (v, expected[1]), (either.eigvals(a), expected[0]),
                         (either.eig(a)[1], expected[1])):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    assert fake.infos == 0


@pytest.mark.parametrize("verb", ["eig", "eigvals"])
def test_what_numpy_refuses(either, fake, rng, verb):  # noqa: F811
    call = getattr(either, verb)
    for a in NON_SQUARE:
        with pytest.raises(np.linalg.LinAlgError) as theirs:
            np.linalg.eig(a)
        with pytest.raises(np.linalg.LinAlgError, match=str(theirs.value).partition(".")[0]):
            call(a)
    with pytest.raises(TypeError, match="a: lists of stacks are for svd and svdvals; pass one array"):
        call([matrices(rng, 3, 3), matrices(rng, 2, 2)])
    with pytest.raises(TypeError, match="unsupported"):
        call(np.eye(2, dtype="O"))
    with pytest.raises(svdserve.InvalidArgument, match="method: must be one of"):
        call(np.eye(2), method="schur")
    assert fake.infos == 0


def test_a_reply_that_does_not_fit(fake, rng):
    def change(message):
        if message.WhichOneof("step") == "accepted":
            message.accepted.result_bytes //= 2  # as if results were real

    fake.large.tamper = change
    with svdserve.Client(fake.address) as client, pytest.raises(svdserve.Internal, match="with results of"):
        client.eig(matrices(rng, 3, 3))


def test_progress(either, fake, rng):  # noqa: F811
    told = []
    either.eig(matrices(rng, 2, 30, 30), progress=told.append)
    assert {p.matrix for p in told} == {0, 1} and told[-1].stage == "download" and told[-1].fraction == 1


# --- against the real server --------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ORDERS)
def test_as_numpy(client, rng, n, dtype):
    a = matrices(rng, n, n, dtype=dtype)
    result = client.eig(a)
    check_eig(a, result)
    assert result.status == MatrixStatus.OK and result.certificate is None and len(result.summaries) == 1
    assert result.summaries[0].method == "qr"
    # Eigenvalues of random matrices are well-conditioned, within their order.
    assert distance(result.eigenvalues, np.linalg.eigvals(a.astype("c16"))) < 1e3 * n * np.finfo(dtype).eps
    alone = client.eigvals(a)
    assert alone.dtype == result.eigenvalues.dtype
    assert distance(alone, result.eigenvalues) < 1e3 * n * np.finfo(dtype).eps
    if a.dtype.kind == "f":
        check_pairs(result.eigenvalues)
        check_pairs(alone)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ORDERS)
def test_left_eigenvectors(client, rng, n, dtype):
    a = matrices(rng, n, n, dtype=dtype)
    w, vl, v = result = client.eig(a, left=True, certificate=True)
    check_eig(a, result)
    assert result.certificate.residual <= 5 * n * np.finfo(dtype).eps
    # Left and right eigenvectors of different eigenvalues are orthogonal.
    products = vl.conj().T @ v
    assert np.abs(products - np.diag(np.diag(products))).max() < 3e3 * n * np.finfo(dtype).eps


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("shape", [(7, 4, 4), (2, 3, 5, 5), (1, 1, 1, 1)])
def test_stacks(client, rng, shape, left):
    a = matrices(rng, *shape)
    result = client.eig(a, left, certificate="matrix")
    check_eig(a, result)
    assert result.status.shape == shape[:-2] and len(result.summaries) == np.prod(shape[:-2])
    assert result.certificate.each_matrix.shape == (*shape[:-2], 3)
    assert result.certificate.each_matrix[..., 0].max() == result.certificate.residual < 1e-13
    one = client.eig(a[(0,) * (a.ndim - 2)], left)
    same = one.eigenvalues.astype(result.eigenvalues.dtype), one.eigenvectors.astype(result.eigenvectors.dtype)
    assert np.array_equal(same[0], result.eigenvalues[(0,) * (a.ndim - 2)])
    assert np.array_equal(same[1], result.eigenvectors[(0,) * (a.ndim - 2)])


@pytest.mark.parametrize("left", [False, True])
def test_layouts(client, rng, left):
    whole = matrices(rng, 40, 60, dtype="c16")
    for a in (np.asfortranarray(whole[:20, :20]), whole[::2, ::3], whole[:20, :20][::-1, ::-1], whole[:20, 40:].T,
              whole[:20, :20].astype(">c16"), np.broadcast_to(whole[0, :3], (3, 3))):
        check_eig(a.astype("c16"), client.eig(a, left))


def test_symmetric_matrices_have_real_eigenvalues(client, rng):
    a = matrices(rng, 30, 30)
    a += a.T
    w, v = result = client.eig(a)
    check_eig(a, result)
    assert w.dtype == v.dtype == np.float64
    assert np.abs(np.sort(w) - np.linalg.eigvalsh(a)).max() < 1e-12
    assert np.abs(v.T @ v - np.eye(30)).max() < 1e-11


@pytest.mark.parametrize("n", [2, 3, 10])
def test_defective_matrices(client, n):
    a = np.eye(n) * 2 + np.eye(n, k=1)  # a Jordan block
    w, vl, v = result = client.eig(a, left=True)
    check_eig(a, result)
    assert np.array_equal(w, np.full(n, 2.0)) and np.abs(np.abs(v[0, 0]) - 1) < 1e-15
    similar = np.random.default_rng(4).standard_normal((n, n))
    a = similar @ a @ np.linalg.inv(similar)
    w, vl, v = client.eig(a, left=True)
    assert residuals(a, w, vl, v) < 1e-13 and np.abs(w - 2).max() < 100 * np.finfo(float).eps ** (1 / n) * 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_matrices(client, dtype):
    a = np.zeros((2, 4, 4), dtype)
    w, vl, v = result = client.eig(a, left=True)
    assert not w.any() and {x.dtype for x in result} == {np.dtype(dtype)}
    assert np.allclose(np.linalg.norm(v, axis=-2), 1) and np.allclose(np.linalg.norm(vl, axis=-2), 1)
    assert not client.eigvals(a).any()


@pytest.mark.parametrize("dtype, scale", [("f8", 2.0 ** 996), ("f8", 2.0 ** -960), ("c16", 2.0 ** 996),
                                          ("f4", 2.0 ** 120), ("f4", 2.0 ** -100), ("c8", 2.0 ** -100)])
def test_a_power_of_two_scales_the_eigenvalues_alone(client, rng, dtype, scale):
    a = matrices(rng, 12, 12, dtype=dtype)
    w, vl, v = client.eig(a, left=True)
    huge = client.eig((a * scale).astype(dtype), left=True)
    assert np.array_equal(huge.eigenvalues / scale, w)
    assert np.array_equal(huge.eigenvectors, v) and np.array_equal(huge.left_eigenvectors, vl)


def test_eigenvalues_beyond_the_range(client):
    w, status = client.eigvals(np.full((2, 2), 1.5e308), return_status=True)
    assert status == MatrixStatus.OUT_OF_RANGE and np.isinf(w).sum() == 1 and np.abs(w).min() < 1e293
    w = client.eigvals(np.full((3, 3), 1e300))
    assert abs(np.abs(w).max() / 3e300 - 1) < 1e-14


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_what_is_not_finite_is_told_with_its_place(client, rng, value, dtype):
    a = matrices(rng, 2, 6, 6, dtype=dtype)
    a[1, 4, 2] = value
    for verb in (client.eig, client.eigvals):
        with pytest.raises(svdserve.InvalidArgument, match=r"^matrix \[1\]: .*row 4 and column 2") as refused:
            verb(a)
        assert refused.value.reason == "NON_FINITE"


@pytest.mark.parametrize("method", ["jacobi", "tridiagonal", "factored", "bisection"])
def test_the_method_is_qr(client, method):
    with pytest.raises(svdserve.InvalidArgument, match="^method: must be AUTO or QR") as refused:
        client.eig(np.eye(3), method=method)
    assert refused.value.field == "open.options.method"
    check_eig(np.eye(3), client.eig(np.eye(3), method="QR"))


@pytest.mark.parametrize("a", NON_SQUARE)
def test_what_is_not_square(client, a):
    for verb in (client.eig, client.eigvals):
        with pytest.raises(np.linalg.LinAlgError):
            verb(a)


def test_integers_and_lists(client):
    w, v = client.eig([[2, 0], [0, 3]])
    assert sorted(w) == [2, 3] and w.dtype == v.dtype == np.float64
    w = client.eigvals(np.array([[0, -1], [1, 0]], "i1"))
    assert np.abs(w.imag ** 2 - 1).max() < 1e-14 and not w.sum() and w.dtype == np.complex128


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_matrix(client, rng, dtype):
    a = matrices(rng, 200, 200, dtype=dtype)
    stages = []
    result = client.eig(a, left=True, progress=lambda p: stages.append(p.stage))
    check_eig(a, result)
    assert {"upload", "download"} <= set(stages)


def test_coroutines(address, rng):
    a, b = matrices(rng, 4, 3, 3), matrices(rng, 20, 20, dtype="c8")

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.eig(a), client.eig(b, left=True), client.eigvals(a))

    first, second, values = asyncio.run(ask())
    check_eig(a, first)
    check_eig(b, second)
    assert close(np.sort_complex(values), np.sort_complex(first.eigenvalues), a)
