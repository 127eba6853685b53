"""eig and eigvals with starting vectors, and the condition numbers of eigenvalues."""

import asyncio

import numpy as np
import pytest

import fake_server
import svdserve
from svdserve import MatrixStatus, _proto
from svdserve._narrow import BF16
from test_eig import batches, check_eig, residuals  # noqa: F401  # batches is a fixture
from test_large import either  # noqa: F401  # a fixture
from test_svd import DTYPES, matrices

COMPLEX = {"f4": "<c8", "c8": "<c8", "f8": "<c16", "c16": "<c16"}


def received(batch):
    """The starting vectors of each matrix of a request."""
    shape = batch.count, batch.rows, batch.cols
    start = np.frombuffer(batch.starting_vectors, "<c8" if batch.data_type in (1, 3) else "<c16").reshape(shape)
    return start.swapaxes(1, 2) if batch.memory_order == 2 else start


def conditions_of(result):
    """1 / abs(w^H v) of the vectors themselves."""
    return 1 / np.abs((result.left_eigenvectors.conj() * result.eigenvectors).sum(-2))


# --- against a server that the test directs -----------------------------------------------------

def test_starting_vectors_of_16_bits_are_converted(either, fake, batches, rng):  # noqa: F811
    a = matrices(rng, 2, 4, 4, dtype="f4")
    v0 = (rng.standard_normal((2, 4, 4)).astype("<f4").view("<u4") & 0xFFFF0000).view("<f4")
    for start in ((v0.view("<u4") >> 16).astype("<u2").view(BF16), v0.astype("<f2")):
        fake.requests.clear()
        either.eig(a, start=start)
        (request,) = fake.requests
        wide = v0 if start.dtype == BF16 else start.astype("<f4")
        assert np.array_equal(received(request.matrices), wide.astype("<c8"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column_major", [False, True])
def test_starting_vectors_lie_beside_their_matrices(either, fake, batches, rng, dtype, column_major):  # noqa: F811
    a, v0 = matrices(rng, 2, 3, 4, 4, dtype=dtype), matrices(rng, 2, 3, 4, 4, dtype="c16")
    a = a.swapaxes(-1, -2) if column_major else a
    result = either.eig(a, start=v0)
    assert (residuals(a, *result) < 100 * np.finfo(a.dtype).eps).all() and result.condition is None
    assert result.vectors_condition is None
    (request,) = fake.requests
    assert request.options.starting_vectors and not request.options.condition
    assert request.options.method == _proto.METHODS["AUTO"] and request.matrices.memory_order == 1 + column_major
    assert np.array_equal(received(request.matrices), v0.reshape(6, 4, 4).astype(COMPLEX[dtype]))
    assert fake.announced == [str(request.ByteSize())]


@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 3, 3), (4, 3, 3), (1, 1, 1, 1), (3, 1)])
@pytest.mark.parametrize("dtype", ["f8", "c8", "i4", "?"])
def test_starting_vectors_are_broadcast(either, fake, batches, rng, shape, dtype):  # noqa: F811
    a, v0 = matrices(rng, 2, 4, 3, 3), np.asarray(rng.standard_normal(shape) * 9).astype(dtype)
    either.eigvals(a, start=v0, max_sweeps=7)
    (request,) = fake.requests
    assert np.array_equal(received(request.matrices), np.broadcast_to(v0, a.shape).reshape(8, 3, 3).astype("c16"))
    assert request.options.max_sweeps == 7


def test_starting_vectors_of_a_result(either, fake, batches, rng):  # noqa: F811
    a = matrices(rng, 5, 4, 4)
    a += a.swapaxes(-1, -2)
    v = either.eig(a).eigenvectors
    assert v.dtype == "f8"  # real, as all eigenvalues are
    either.eig(a, start=v)
    assert np.array_equal(received(fake.requests[1].matrices), v.astype("c16"))
    either.eig(a, start=v[0].tolist())
    assert np.array_equal(received(fake.requests[2].matrices)[3], v[0].astype("c16"))


def test_pieces_have_their_starting_vectors(fake, batches, rng):  # noqa: F811
    a, v0 = matrices(rng, 500, 4, 4, dtype="f4"), matrices(rng, 500, 4, 4, dtype="c8")
    with svdserve.Client(fake.address, piece_bytes=1 << 12) as client:
        result = client.eig(a, start=v0, condition=True)
    assert result.condition.shape == (500, 4) and result.condition.dtype == "f4"
    sent = sorted(fake.requests, key=lambda r: int(np.flatnonzero(
        (np.frombuffer(r.matrices.data, "<f4", 16) == a.reshape(500, 16)).all(-1))[0]))
    assert len(sent) > 10 and all(r.ByteSize() < (1 << 12) + 300 for r in sent)
    assert np.array_equal(np.concatenate([received(r.matrices) for r in sent]), v0)


@pytest.mark.parametrize("shape", [(2, 4, 4), (4, 5), (3, 2, 4, 4), (1, 3, 4, 4)])
@pytest.mark.parametrize("verb", ["eig", "eigvals"])
def test_starting_vectors_of_another_shape(either, fake, rng, shape, verb):  # noqa: F811
    with pytest.raises(ValueError, match=r"^start: its shape .* cannot be broadcast to that of a, \(3, 4, 4\)"):
        getattr(either, verb)(matrices(rng, 3, 4, 4), start=np.zeros(shape))
    assert fake.infos == 0


def test_what_cannot_start(either, fake, batches, rng):  # noqa: F811
    a = matrices(rng, 3, 4, 4)
    with pytest.raises(TypeError, match="^start: array type object is unsupported"):
        either.eig(a, start=np.eye(4, dtype="O"))
    with pytest.raises(svdserve.InvalidArgument, match="^method: must be 'auto' or 'jacobi' with start") as refused:
        either.eig(a, start=np.eye(4), method="QR")
    assert refused.value.field == "options.method" and fake.infos == 0
    large = matrices(rng, 2, 5, 5)
    for verb in (either.eig, either.eigvals):
        with pytest.raises(svdserve.InvalidArgument,
                           match="^condition: is for matrices up to n = 4, and these have n = 5; leave it out"):
            verb(large, condition=True)
    assert not fake.requests and not fake.large.opens


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
def test_conditions(either, fake, batches, rng, dtype, left):  # noqa: F811
    a = matrices(rng, 2, 3, 4, 4, dtype=dtype)
    result = either.eig(a, left, condition=True)
    w, *vectors = result  # unpacks as without
    assert len(vectors) == 1 + left and result.condition.shape == (2, 3, 4)
    assert result.condition.dtype == a.real.dtype and result.condition.flags.writeable
    expected = np.linalg.norm(vectors[-1], axis=(-2, -1)) * np.linalg.norm(np.linalg.inv(vectors[-1]), axis=(-2, -1))
    assert np.allclose(result.vectors_condition, expected, rtol=1e5 * np.finfo(dtype).eps)
    values, condition = either.eigvals(a, condition=True)
    assert np.array_equal(condition, result.condition) and values.shape == w.shape
    values, condition, status = either.eigvals(a, condition=True, return_status=True)
    assert condition.shape == (2, 3, 4) and status.shape == (2, 3)
    assert all(request.options.condition for request in fake.requests)


@pytest.mark.parametrize("shape", [(0, 4, 4), (3, 0, 0), (0, 0), (2, 0, 5, 5)])
def test_nothing_has_conditions(either, fake, shape):  # noqa: F811
    a = np.zeros(shape, "f4")
    result = either.eig(a, condition=True, start=a)
    assert result.condition.shape == shape[:-1] and result.condition.dtype == "f4"
    assert result.vectors_condition.shape == shape[:-2] and fake.infos == 0
    assert either.eigvals(a, condition=True)[1].shape == shape[:-1]


@pytest.mark.parametrize("change, match", [
    (lambda r: setattr(r, "eigenvalue_conditions", b""), "0 bytes of eigenvalue_conditions, 72 were asked for"),
    (lambda r: setattr(r, "eigenvalue_conditions", bytes(144)), "144 bytes of eigenvalue_conditions"),
])
def test_conditions_that_do_not_fit(fake, batches, rng, change, match):  # noqa: F811
    def spoilt(request, context):
        reply = fake_server.decompose(request)
        change(reply)
        return reply

    fake.handler = spoilt
    with svdserve.Client(fake.address) as client:
        with pytest.raises(svdserve.Internal, match=match):
            client.eig(matrices(rng, 3, 3, 3), condition=True)
        fake.handler = lambda request, context: _proto.EigendecomposeResponse(
            count=1, values_per_matrix=1, eigenvalues=bytes(16), eigenvalue_conditions=bytes(8))
        with pytest.raises(svdserve.Internal, match="it holds eigenvalue_conditions, which was not asked for"):
            client.eigvals(np.eye(1))


# --- against the real server --------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column_major", [False, True])
def test_neighbours_save_sweeps(client, rng, dtype, column_major):
    a = matrices(rng, 20, 12, 12, dtype=dtype)
    a = a.swapaxes(-1, -2) if column_major else a
    near = (a + 1e-6 * matrices(rng, 20, 12, 12, dtype=dtype)).astype(dtype)
    v0 = client.eig(a).eigenvectors
    # In single precision four sweeps are enough for a few.
    assert (client.eig(near, method="jacobi", max_sweeps=4).status == MatrixStatus.BY_QR).mean() > 0.5
    result = client.eig(near, left=True, start=v0, max_sweeps=4)
    check_eig(near, result)
    assert not result.status.any()
    assert (client.eigvals(near, start=v0, max_sweeps=4, return_status=True)[1] == MatrixStatus.OK).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 32])
def test_conditions_of_random_matrices(client, rng, n, dtype):
    a = matrices(rng, 20, n, n, dtype=dtype)
    result = client.eig(a, left=True, condition=True)
    check_eig(a, result)
    assert set(result.status) <= {MatrixStatus.OK, MatrixStatus.NEAR_DEFECTIVE}
    expected, eps = conditions_of(result), np.finfo(dtype).eps
    assert (np.abs(result.condition - expected) <= 10 * n * eps * expected ** 2).all() and (result.condition >= 1).all()
    v = result.eigenvectors.astype("c16")
    whole = np.linalg.norm(v, axis=(-2, -1)) * np.linalg.norm(np.linalg.inv(v), axis=(-2, -1))
    assert np.allclose(result.vectors_condition, whole, rtol=1e4 * n * eps)
    w, condition, status = client.eigvals(a, condition=True, return_status=True)
    assert condition.shape == (20, n) and set(status) <= set(result.status) | {0}


def test_a_defective_matrix_is_told(client):
    a = np.stack([np.diag([1.0, 2, 3]), [[1, 1, 0], [0, 1, 0], [0, 0, 2]], np.diag([4.0, 4, 4])])
    assert not client.eig(a).status.any()
    result = client.eig(a, condition=True)
    assert result.status.tolist() == [MatrixStatus.OK, MatrixStatus.NEAR_DEFECTIVE, MatrixStatus.OK]
    assert np.isfinite(result.eigenvectors).all() and (result.condition[[0, 2]] == 1).all()
    assert result.condition[1].max() > 1e7 and result.vectors_condition[1] > 1e7
    assert result.vectors_condition[0] == pytest.approx(3)  # that of the identity


@pytest.mark.parametrize("useless", [0.0, np.nan, np.inf])
def test_useless_starting_vectors_cost_sweeps_alone(client, rng, useless):
    a = matrices(rng, 6, 5, 5)
    v0 = np.tile(np.eye(5, dtype=complex), (6, 1, 1))
    v0[2, :, 1] = useless
    spoilt = a.copy()
    spoilt[4, 0, 0] = np.nan
    result = client.eig(spoilt, start=v0, condition=True)
    assert result.status.tolist() == [0, 0, MatrixStatus.BY_QR, 0, MatrixStatus.NON_FINITE, 0]
    assert np.isnan(result.condition[4]).all() and np.isnan(result.vectors_condition[4])
    clean = client.eig(a, start=np.eye(5))
    kept = [0, 1, 3, 5]
    assert np.array_equal(result.eigenvectors[kept], clean.eigenvectors[kept])
    assert np.array_equal(result.eigenvectors[2], client.eig(a).eigenvectors[2])


def test_matrices_beyond_a_batch_have_no_conditions(client):
    with pytest.raises(svdserve.InvalidArgument, match="^condition: is for matrices up to n = 32"):
        client.eig(np.eye(33), condition=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column_major", [False, True])
def test_large_matrices_start_from_those_of_a_neighbour(client, rng, dtype, column_major):
    a = matrices(rng, 2, 60, 60, dtype=dtype)
    if column_major:
        a = np.asfortranarray(a[0])
    before = client.eig(a)
    cold = client.eig(a, method="jacobi")
    near = a + np.asarray(1e-5 * matrices(rng, *a.shape, dtype=dtype), a.dtype)
    warm = client.eig(near, start=before.eigenvectors, left=True)
    check_eig(a, cold)
    check_eig(near, warm)
    summaries = [(x.method, x.sweeps) for result in (cold, warm) for x in np.ravel(result.summaries)]
    assert all(method == "jacobi" for method, _ in summaries)
    half = len(summaries) // 2
    assert all(2 * sweeps <= of_cold for (_, of_cold), (_, sweeps) in zip(summaries[:half], summaries[half:]))


def test_a_large_matrix_with_useless_starting_vectors_goes_to_qr(client, rng):
    a = matrices(rng, 40, 40)
    result = client.eig(a, start=np.zeros((40, 40)))
    check_eig(a, result)
    assert [x.method for x in np.ravel(result.summaries)] == ["qr"]
    assert np.array_equal(result.eigenvectors, client.eig(a).eigenvectors)


def test_coroutines(address, rng):
    a = matrices(rng, 4, 6, 6, dtype="c8")

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            first = await client.eig(a, condition=True)
            return first, await client.eig(a, start=first.eigenvectors, max_sweeps=3), await client.eigvals(a, condition=True)

    first, warm, (values, condition) = asyncio.run(ask())
    assert not warm.status.any() and (residuals(a, *warm) < 100 * np.finfo("c8").eps).all()
    assert values.shape == condition.shape == first.condition.shape == (4, 6)


def test_a_start_has_two_dimensions(client):
    for start in (1.0, False, np.ones(4)):
        with pytest.raises(ValueError, match="start: must have at least two dimensions"):
            client.eig(np.eye(4), start=start)
    with pytest.raises(ValueError, match="start: must be an array"):
        client.eig(np.eye(2), start=[[1, 2], [3]])


def test_large_conditions_have_a_finite_condition_of_vectors(client):
    n = 16
    e = client.eig(np.eye(n) + np.eye(n, k=1), condition=True)
    with np.errstate(all="raise"):
        assert 1e200 < e.vectors_condition < np.inf
