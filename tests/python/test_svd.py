"""svd: the results of numpy.linalg.svd, from a server."""

import asyncio

import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus

DTYPES = ["f4", "f8", "c8", "c16"]


def matrices(rng, *shape, dtype="f8"):
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else a).astype(dtype)


def close(a, b, of):
    return np.allclose(a, b, rtol=0, atol=200 * np.finfo(np.asarray(of).real.dtype).eps * max(1, np.abs(b).max()))


def check(a, result, full):
    """U S Vh is a, the columns are orthonormal, and shapes and types are NumPy's."""
    u, s, vh = result
    expected = np.linalg.svd(a, full_matrices=full)
    assert (u.shape, s.shape, vh.shape) == tuple(x.shape for x in expected)
    assert (u.dtype, s.dtype, vh.dtype) == tuple(x.dtype for x in expected)
    k = s.shape[-1]
    assert close(s, expected[1], a)
    assert close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, a)
    assert close(u.conj().swapaxes(-1, -2) @ u, np.eye(u.shape[-1]), a)
    assert close(vh @ vh.conj().swapaxes(-1, -2), np.eye(vh.shape[-2]), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 3, 6, 2), (5, 2, 7), (4, 1, 1), (3, 12, 12), (1, 40, 3), (3, 64, 64), (2, 40, 200)])
@pytest.mark.parametrize("full", [True, False])
def test_as_numpy(client, rng, shape, dtype, full):
    a = matrices(rng, *shape, dtype=dtype)
    result = client.svd(a, full)
    check(a, result, full)
    assert (result.status == MatrixStatus.OK).all() and result.certificate is None
    assert isinstance(result, tuple) and result.U is result[0] and result.Vh is result[2]


def test_numpys_defaults(client, rng):
    a = matrices(rng, 2, 5, 3)
    assert [x.shape for x in client.svd(a)] == [x.shape for x in np.linalg.svd(a)]
    values = client.svd(a, compute_uv=False)
    assert isinstance(values, np.ndarray) and close(values, np.linalg.svd(a, compute_uv=False), a)


@pytest.mark.parametrize("full", [True, False])
def test_column_major_operands(client, rng, full):
    a = np.ascontiguousarray(matrices(rng, 4, 3, 5, dtype="c16").swapaxes(-1, -2)).swapaxes(-1, -2)
    assert not a.flags.c_contiguous
    check(a, client.svd(a, full), full)
    one = np.asfortranarray(matrices(rng, 5, 3))
    check(one, client.svd(one, full), full)


def test_the_leading_triplets(client, rng):
    a = matrices(rng, 3, 6, 5)
    u, s, vh = client.svd(a, top_k=2)
    assert (u.shape, s.shape, vh.shape) == ((3, 6, 2), (3, 2), (3, 2, 5))
    all_u, all_s, all_vh = client.svd(a, full_matrices=False)
    assert np.array_equal(s, all_s[:, :2]) and np.array_equal(u, all_u[:, :, :2]) and np.array_equal(vh, all_vh[:, :2])
    assert client.svd(a, compute_uv=False, top_k=2).shape == (3, 2)


def test_fixed_phases(client, rng):
    a = matrices(rng, 20, 4, 4, dtype="c16")
    u, s, vh = client.svd(a, fix_phases=True)
    largest = np.take_along_axis(u, np.abs(u).argmax(axis=1)[:, None, :], axis=1)
    assert (largest.real > 0).all() and (np.abs(largest.imag) < 1e-14).all()
    check(a, (u, s, vh), True)


def test_the_certificate(client, rng):
    a = matrices(rng, 30, 4, 3)
    certificate = client.svd(a, certificate=True).certificate
    assert 0 < certificate.residual < 1e-14 and 0 < certificate.left_orthogonality < 1e-14
    assert certificate.each_matrix is None
    a[7, 0, 0] = np.nan
    result = client.svd(a, certificate="matrix")
    each = result.certificate.each_matrix
    assert each.shape == (30, 3) and np.isnan(each[7]).all()
    assert result.certificate.residual == np.nanmax(each[:, 0])
    assert result.certificate.right_orthogonality == np.nanmax(each[:, 2])


def test_matrices_without_full_rank_get_bases(client):
    a = np.zeros((3, 5, 4))
    a[1, 2, 3] = 2
    a[2] = 1
    check(a, client.svd(a), True)


def test_a_matrix_that_is_not_finite_is_nan_and_alone(client, rng):
    a = matrices(rng, 5, 4, 4)
    clean = client.svd(a)
    spoilt = a.copy()
    spoilt[3, 1, 2] = np.inf
    result = client.svd(spoilt)
    assert result.status.tolist() == [0, 0, 0, MatrixStatus.NON_FINITE, 0]
    for mine, other in zip(result, clean):
        assert np.isnan(mine[3]).all() and np.array_equal(np.delete(mine, 3, 0), np.delete(other, 3, 0))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0), (4, 0, 2, 2)])
@pytest.mark.parametrize("full", [True, False])
def test_nothing_is_answered_as_by_numpy(client, shape, full):
    mine, numpys = client.svd(np.zeros(shape), full), np.linalg.svd(np.zeros(shape), full)
    for x, y in zip(mine, numpys):
        assert x.shape == y.shape and np.array_equal(x, y)


def test_a_list_of_shapes(client, rng):
    stacks = [matrices(rng, 3, 4, 4), matrices(rng, 2, 5, dtype="c8"), matrices(rng, 0, 3, 3), matrices(rng, 7, 1, 6),
              matrices(rng, 2, 2, 9, 3, dtype="f4"), np.asfortranarray(matrices(rng, 4, 3, dtype="c16"))]
    for full in (True, False):
        results = client.svd(stacks, full)
        assert isinstance(results, list) and len(results) == len(stacks)
        for a, result in zip(stacks, results):
            if a.size:
                check(a, result, full)
    values = client.svdvals(stacks)
    assert [v.shape for v in values] == [(3, 4), (2,), (0, 3), (7, 1), (2, 2, 3), (3,)]
    for a, v in zip(stacks, values):
        assert np.array_equal(v, client.svdvals(a))


@pytest.mark.parametrize("arguments, field", [
    (dict(top_k=4), "options.top_k"), (dict(top_k=0), "options.top_k"), (dict(top_k=-1), "options.top_k"),
    (dict(compute_uv=False, fix_phases=True), "options.fix_phases"),
    (dict(compute_uv=False, certificate=True), "options.certificate"),
    (dict(certificate="all"), "options.certificate"), (dict(tolerance=2), "options.tolerance"),
    (dict(max_sweeps=-1), "options.max_sweeps")])
def test_what_the_server_refuses_is_named(client, arguments, field):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.svd(np.eye(3), **arguments)
    assert refused.value.field == field


def test_a_bad_group_is_named(client):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.svd([np.eye(5), np.eye(2)], top_k=3)
    assert refused.value.field == "options.top_k"


def test_methods_of_values_alone_end_at_32(client, rng):
    a = matrices(rng, 2, 33, 40)
    for method in ("bidiagonal", "bisection"):
        with pytest.raises(svdserve.InvalidArgument) as refused:
            client.svdvals(a, method=method)
        assert refused.value.field == "options.method"
    assert close(client.svdvals(a), np.linalg.svd(a, compute_uv=False), a)


def test_large_channels(client, rng):
    h = matrices(rng, 3, 64, 48, dtype="c8")
    s = np.linalg.svd(h.astype("c16"), compute_uv=False)
    expected = np.log2(1 + 10 * s ** 2 / 48).sum(-1)
    assert np.allclose(client.capacity(h, snr_db=[10])[:, 0], expected, rtol=1e-4)
    v = client.precoders(h, rank=40)
    assert v.shape == (3, 48, 40) and close(v.conj().swapaxes(-1, -2) @ v, np.eye(40), h)


def test_coroutines(address, rng):
    a, b = matrices(rng, 4, 3, 3), [matrices(rng, 2, 2), matrices(rng, 3, 1, 4)]

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.svd(a), client.svd(b, full_matrices=False),
                                        client.svd(a, compute_uv=False))

    one, many, values = asyncio.run(ask())
    check(a, one, True)
    check(b[1], many[1], False)
    assert np.array_equal(values, one.S) or close(values, one.S, a)


def test_pieces_are_joined(fake, rng):
    a = matrices(rng, 500, 3, 4, dtype="c8")
    whole = svdserve.Client(fake.address).svd(a)
    with svdserve.Client(fake.address, piece_bytes=1 << 12) as client:
        before = len(fake.requests)
        joined = client.svd(a, certificate="matrix")
        assert len(fake.requests) - before > 10
    for x, y in zip(whole, joined):
        assert np.array_equal(x, y)
    assert joined.certificate.each_matrix.shape == (500, 3)
