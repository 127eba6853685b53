"""eig and eigvals: the results of numpy.linalg.eig, and left eigenvectors as SciPy has them."""

import asyncio

import grpc
import numpy as np
import pytest

import fake_server
import svdserve
from svdserve import MatrixStatus, _proto
from test_large import either  # noqa: F401  # a fixture
from test_svd import DTYPES, close, matrices

ORDERS = [1, 2, 3, 5, 10, 32, 33, 50]
LARGEST_OF_A_BATCH = 32
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
    assert (one == other.conj()).all() and (one.imag > 0).all()


@pytest.fixture
def batches(fake):
    """The server takes batches of general matrices; without this each matrix is a call."""
    fake.limits["max_general_order"] = 4


# --- against a server that the test directs -----------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_a_stack_is_a_batch(either, fake, batches, rng, dtype, column_major, left):  # noqa: F811
    a = matrices(rng, 2, 3, 4, 4, dtype=dtype)
    a = a.swapaxes(-1, -2) if column_major else a
    result = either.eig(a, left, certificate="matrix")
    assert (residuals(a, *result) < 100 * np.finfo(a.dtype).eps).all() and len(result) == 2 + left
    assert {x.dtype for x in result} == {np.result_type(dtype, "c8")} and all(x.flags.writeable for x in result)
    assert result.status.shape == (2, 3) and not result.status.any() and result.summaries == ()
    assert result.certificate.residual == 1e-16 and result.certificate.each_matrix.shape == (2, 3, 3)
    (request,) = fake.requests
    assert isinstance(request, _proto.EigendecomposeRequest) and not fake.large.opens
    assert (request.matrices.rows, request.matrices.cols, request.matrices.count) == (4, 4, 6)
    assert request.matrices.memory_order == 1 + column_major
    options = request.options
    assert options.problem == _proto.EIGEN_PROBLEMS["GENERAL"] and options.method == _proto.METHODS["AUTO"]
    assert options.vectors == _proto.EIGENVECTORS["RIGHT_AND_LEFT" if left else "RIGHT"]
    assert fake.announced == [str(request.ByteSize())]


def test_eigenvalues_of_a_batch_alone(either, fake, batches, rng):  # noqa: F811
    a = matrices(rng, 5, 3, 3, dtype="c8")
    w, status = either.eigvals(a, method="Jacobi", max_sweeps=7, return_status=True)
    assert close(w, np.linalg.eigvals(a), a) and w.dtype == "c8" and status.tolist() == [MatrixStatus.OK] * 5
    assert w.flags.writeable
    (request,) = fake.requests
    assert request.options.vectors == _proto.EIGENVECTORS["NONE"] and request.options.method == _proto.METHODS["JACOBI"]
    assert request.options.max_sweeps == 7


def test_the_order_decides(either, fake, batches, rng):  # noqa: F811
    small, large = matrices(rng, 3, 4, 4), matrices(rng, 3, 5, 5)
    assert (residuals(small, *either.eig(small)) < 1e-13).all() and (len(fake.requests), len(fake.large.opens)) == (1, 0)
    assert (residuals(large, *either.eig(large)) < 1e-13).all() and (len(fake.requests), len(fake.large.opens)) == (1, 3)
    fake.limits["max_large_bytes"] = 0
    with svdserve.Client(fake.address) as client:  # such a server takes no large matrices: it is asked, and says so
        assert (residuals(large, *client.eig(large)) < 1e-13).all() and len(fake.large.opens) == 3


def test_pieces_are_joined(fake, batches, rng):
    a = matrices(rng, 500, 4, 4, dtype="c8")
    with svdserve.Client(fake.address, piece_bytes=1 << 12) as client:
        assert (residuals(a, *client.eig(a, left=True)) < 1e-4).all()
    assert len(fake.requests) > 10 and not fake.large.opens


@pytest.mark.parametrize("change, match", [
    (lambda r: r.ClearField("left_vector_rows"), "its vectors have 3 and 0 columns, 3 and 3 were asked for"),
    (lambda r: setattr(r, "vectors", r.vectors[8:]), "bytes of left_vectors"),
    (lambda r: setattr(r, "left_vectors_adjoint", b""), "bytes of right_vectors_adjoint"),
    (lambda r: setattr(r, "eigenvalues", r.eigenvalues[:24]), "bytes of singular_values"),  # as if they were real
])
def test_a_reply_that_does_not_fit_the_batch(fake, batches, rng, change, match):
    def spoilt(request, context):
        reply = fake_server.decompose(request)
        change(reply)
        return reply

    fake.handler = spoilt
    with svdserve.Client(fake.address) as client, pytest.raises(svdserve.Internal, match=match):
        client.eig(matrices(rng, 3, 3), left=True)


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
@pytest.mark.parametrize("largest", [0, 4])
def test_results_are_real_where_all_eigenvalues_are(either, fake, dtype, computed, left, largest):  # noqa: F811
    fake.limits["max_general_order"] = largest
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
    for method in ("schur", "bidiagonal", "tridiagonal", "factored", None):
        with pytest.raises(svdserve.InvalidArgument,
                           match=f"^method: must be one of 'auto', 'qr', 'jacobi', but is {method!r}"):
            call(np.eye(2), method=method)
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
    assert result.status == MatrixStatus.OK and result.certificate is None
    assert [summary.method for summary in result.summaries] == ["qr"] * (n > LARGEST_OF_A_BATCH)
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
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 4, 4), (2, 3, 5, 5), (1, 1, 1, 1), (9, 2, 2), (3, 32, 32), (2, 33, 33)])
def test_stacks(client, rng, shape, left, dtype):
    a = matrices(rng, *shape, dtype=dtype)
    result = client.eig(a, left, certificate="matrix")
    check_eig(a, result)
    is_large = shape[-1] > LARGEST_OF_A_BATCH
    assert result.status.shape == shape[:-2] and len(result.summaries) == is_large * np.prod(shape[:-2])
    each = result.certificate.each_matrix
    assert each.shape == (*shape[:-2], 3) and not each[..., 1:].any()  # eigenvectors are not orthogonal
    assert each[..., 0].max() == each.dtype.type(result.certificate.residual) <= 5 * shape[-1] * np.finfo(dtype).eps
    values, status = client.eigvals(a, return_status=True)
    assert status.shape == shape[:-2] and values.dtype == result.eigenvalues.dtype
    one = client.eig(a[(0,) * (a.ndim - 2)], left)
    same = one.eigenvalues.astype(result.eigenvalues.dtype), one.eigenvectors.astype(result.eigenvectors.dtype)
    assert np.array_equal(same[0], result.eigenvalues[(0,) * (a.ndim - 2)])
    assert np.array_equal(same[1], result.eigenvectors[(0,) * (a.ndim - 2)])


@pytest.mark.parametrize("left", [False, True])
def test_layouts(client, rng, left):
    whole = matrices(rng, 40, 60, dtype="c16")
    for n in (20, 40):
        square = whole[:n, :n]
        for a in (np.asfortranarray(square), square[::-1, ::-1], square.T, square.astype(">c16"),
                  np.broadcast_to(whole[0, :n], (n, n))):
            check_eig(a.astype("c16"), client.eig(a, left))
    stack = matrices(rng, 6, 5, 5, 2)
    for a in (whole[::2, ::3], stack[..., 0], stack[::-2, ::-1, :, 1], stack[..., 0].swapaxes(-1, -2)):
        check_eig(a.astype(a.dtype), client.eig(a, left))


def test_results_of_a_stack_are_real_together(client, rng):
    symmetric = matrices(rng, 6, 4, 4)
    symmetric += symmetric.swapaxes(-1, -2)
    result = client.eig(symmetric, left=True)
    check_eig(symmetric, result)
    assert {x.dtype for x in result} == {np.dtype("f8")} and client.eigvals(symmetric).dtype == "f8"
    symmetric[3, :2, :2], symmetric[3, 2:, :2], symmetric[3, :2, 2:] = [[0, -1], [1, 0]], 0, 0
    result = client.eig(symmetric, left=True)
    check_eig(symmetric, result)
    assert {x.dtype for x in result} == {np.dtype("c16")} and client.eigvals(symmetric).dtype == "c16"


def test_a_matrix_that_is_not_finite_leaves_its_stack_real(client):
    stack = np.array([np.diag([1.0, 2.0]), np.diag([np.nan, 4.0])])
    assert client.eigvals(stack).dtype == "f8"
    w, v = client.eig(stack)
    assert w.dtype == v.dtype == "f8" and np.isfinite(v[0]).all() and np.isnan(v[1]).all()


def test_vectors_are_complex_where_imaginary_parts_of_eigenvalues_vanish(client, rng):
    q = np.linalg.qr(rng.standard_normal((300, 4, 4)))[0]
    stack = (q[:, :, :1] * q[:, None, :, 1] * 1e-36).astype("f4")  # nilpotent but for rounding
    v = np.concatenate([np.asarray(client.eig(a).eigenvectors, "c16") for a in stack])
    assert np.abs(np.linalg.norm(v.reshape(300, 4, 4), axis=1) - 1).max() < 40 * 2.0**-24


@pytest.mark.parametrize("n", [30, 40])
def test_symmetric_matrices_have_real_eigenvalues(client, rng, n):
    a = matrices(rng, n, n)
    a += a.T
    w, v = result = client.eig(a)
    check_eig(a, result)
    assert w.dtype == v.dtype == np.float64
    assert np.abs(np.sort(w) - np.linalg.eigvalsh(a)).max() < 1e-12
    assert np.abs(v.T @ v - np.eye(n)).max() < 1e-11


@pytest.mark.parametrize("n", [2, 3, 10, 40])
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
@pytest.mark.parametrize("n", [4, 40])
def test_zero_matrices(client, dtype, n):
    a = np.zeros((2, n, n), dtype)
    w, vl, v = result = client.eig(a, left=True)
    assert not w.any() and {x.dtype for x in result} == {np.dtype(dtype)}
    assert np.allclose(np.linalg.norm(v, axis=-2), 1) and np.allclose(np.linalg.norm(vl, axis=-2), 1)
    assert not client.eigvals(a).any()


@pytest.mark.parametrize("dtype, scale", [("f8", 2.0 ** 996), ("f8", 2.0 ** -960), ("c16", 2.0 ** 996),
                                          ("f4", 2.0 ** 120), ("f4", 2.0 ** -100), ("c8", 2.0 ** -100)])
@pytest.mark.parametrize("n", [12, 40])
def test_a_power_of_two_scales_the_eigenvalues_alone(client, rng, dtype, scale, n):
    a = matrices(rng, n, n, dtype=dtype)
    w, vl, v = client.eig(a, left=True)
    huge = client.eig((a * scale).astype(dtype), left=True)
    assert np.array_equal(huge.eigenvalues / scale, w)
    assert np.array_equal(huge.eigenvectors, v) and np.array_equal(huge.left_eigenvectors, vl)


@pytest.mark.parametrize("n", [2, 40])
def test_eigenvalues_beyond_the_range(client, n):
    w, status = client.eigvals(np.full((n, n), 1.5e308), return_status=True)
    assert status == MatrixStatus.OUT_OF_RANGE and np.isinf(w).sum() == 1 and np.abs(w).min() < 1e293
    w = client.eigvals(np.full((n + 1, n + 1), 1e300))
    assert abs(np.abs(w).max() / ((n + 1) * 1e300) - 1) < 1e-14


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_a_matrix_that_is_not_finite_leaves_its_neighbours_alone(client, rng, value, dtype):
    a = matrices(rng, 5, 6, 6, dtype=dtype)
    expected = client.eig(a, left=True)
    a[1, 4, 2] = value
    result = client.eig(a, left=True)
    assert result.status.tolist() == [0, MatrixStatus.NON_FINITE, 0, 0, 0]
    for mine, clean in zip(result, expected):
        assert np.isnan(mine[1]).all() and np.array_equal(mine[[0, 2, 3, 4]], clean[[0, 2, 3, 4]])
    w, status = client.eigvals(a, return_status=True)
    assert np.isnan(w[1]).all() and np.isfinite(w[[0, 2, 3, 4]]).all() and status.tolist() == result.status.tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_what_is_not_finite_is_told_with_its_place(client, rng, value, dtype):
    a = matrices(rng, 2, 33, 33, dtype=dtype)
    a[1, 4, 2] = value
    for verb in (client.eig, client.eigvals):
        with pytest.raises(svdserve.InvalidArgument, match=r"^matrix \[1\]: .*row 4 and column 2") as refused:
            verb(a)
        assert refused.value.reason == "NON_FINITE"


@pytest.mark.parametrize("method", ["tridiagonal", "factored", "bisection"])
@pytest.mark.parametrize("n", [3, 33])
def test_the_method_is_of_eigenproblems(client, method, n):
    with pytest.raises(svdserve.InvalidArgument, match="^method: must be one of 'auto', 'qr', 'jacobi', but is") as refused:
        client.eig(np.eye(n), method=method)
    assert refused.value.field == "options.method"
    check_eig(np.eye(n), client.eig(np.eye(n), method="QR"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 32])
def test_jacobi(client, rng, n, left, dtype):
    a = matrices(rng, 20, n, n, dtype=dtype)
    result = client.eig(a, left, method="jacobi", certificate=True)
    assert (residuals(a, *result) < 10 * n * np.finfo(a.dtype).eps).all()
    assert set(result.status) <= {MatrixStatus.BY_QR, MatrixStatus.OK} and (result.status == MatrixStatus.OK).mean() > 0.8
    assert result.certificate.residual <= 10 * n * np.finfo(a.dtype).eps
    w, status = client.eigvals(a, method="jacobi", max_sweeps=1, return_status=True)
    assert set(status) <= {MatrixStatus.BY_QR, MatrixStatus.OK} and (n < 5 or (status == MatrixStatus.BY_QR).all())
    assert n < 5 or (w == client.eigvals(a)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_jacobi_of_a_large_matrix(client, rng, dtype):
    a = matrices(rng, 50, 50, dtype=dtype)
    stages = []
    result = client.eig(a, left=True, method="jacobi", progress=lambda p: stages.append(p.stage))
    check_eig(a, result)
    (summary,) = np.ravel(result.summaries)
    assert summary.method == "jacobi" and 3 < summary.sweeps < 20 and {"upload", "download"} <= set(stages)
    stopped = client.eig(a, method="jacobi", max_sweeps=2)
    check_eig(a, stopped)
    assert [(x.method, x.sweeps) for x in np.ravel(stopped.summaries)] == [("qr", 2)]


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
    a, b, c = matrices(rng, 4, 3, 3), matrices(rng, 5, 20, 20, dtype="c8"), matrices(rng, 2, 33, 33)

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.eig(a), client.eig(b, left=True), client.eig(c), client.eigvals(a))

    first, second, third, values = asyncio.run(ask())
    check_eig(a, first)
    check_eig(b, second)
    check_eig(c, third)
    assert close(np.sort_complex(values), np.sort_complex(first.eigenvalues), a)
