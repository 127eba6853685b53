"""capacity, precoders and mimo: numbers made where the decomposition is."""

import asyncio

import numpy as np
import pytest

import svdserve
from fake_server import water_filling


@pytest.fixture
def h(rng):
    return ((rng.standard_normal((6, 4, 3, 4)) + 1j * rng.standard_normal((6, 4, 3, 4))) / np.sqrt(2)).astype(np.complex64)


def gains(h, snr_db):
    s = np.linalg.svd(h.astype(np.complex128), compute_uv=False)
    return s ** 2 * 10 ** (snr_db / 10)


def equal_power(h, snr_db):
    return np.log2(1 + gains(h, snr_db) / h.shape[-1]).sum(-1)


def test_capacity(client, h):
    assert client.capacity(h, 10).shape == (6, 4)
    np.testing.assert_allclose(client.capacity(h, 10.0), equal_power(h, 10), rtol=1e-5)
    many = client.capacity(h, snr_db=[-5, 0, 20])
    assert many.shape == (6, 4, 3) and many.dtype == np.float32
    for i, db in enumerate((-5, 0, 20)):
        np.testing.assert_allclose(many[..., i], equal_power(h, db), rtol=1e-5)


def test_water_filling(client, h):
    mine = client.capacity(h, [-10, 15], water_filling=True)
    for i, db in enumerate((-10, 15)):
        expected = [[water_filling(g, 1) for g in row] for row in gains(h, db)]
        np.testing.assert_allclose(mine[..., i], expected, rtol=1e-5)
        assert (mine[..., i] >= equal_power(h, db) * (1 - 1e-6)).all()


def test_groups_of_subcarriers(client, h):
    summed = client.capacity(h, 10, group_size=2)
    assert summed.shape == (6, 2)
    np.testing.assert_allclose(summed, equal_power(h, 10).reshape(6, 2, 2).sum(-1), rtol=1e-5)
    filled = client.capacity(h, 3, group_size=4, water_filling=True)
    assert filled.shape == (6, 1)
    expected = [water_filling(g.reshape(-1), 4) for g in gains(h, 3)]
    np.testing.assert_allclose(filled[:, 0], expected, rtol=1e-5)


def test_edges(client):
    zero = np.zeros((2, 3))
    result = client.mimo(zero, snr_db=10, capacity=True, water_filling=True, condition_number=True, effective_rank=True,
                         rank_threshold=0.1)
    assert (result.capacity, result.water_filling, result.effective_rank, result.threshold_rank) == (0, 0, 0, 0)
    assert result.condition_number == np.inf
    bad = np.full((2, 2, 2), [[1, 0], [0, np.nan]])
    bad[0] = np.eye(2)
    c = client.capacity(bad, 0)
    assert c[0] == pytest.approx(2 * np.log2(1.5)) and np.isnan(c[1])


def test_precoders(client, h):
    v = client.precoders(h, rank=2)
    assert v.shape == (6, 4, 4, 2) and v.dtype == np.complex64
    s = np.linalg.svd(h, compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(h @ v, axis=-2), s[..., :2], rtol=1e-4)
    np.testing.assert_allclose(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(2), (6, 4, 2, 2)), atol=1e-5)
    one = np.asfortranarray(h[0, 0])
    np.testing.assert_allclose(np.linalg.norm(one @ client.precoders(one, 1)), s[0, 0, 0], rtol=1e-4)


def test_everything_at_once(client, h):
    result = client.mimo(h, snr_db=[0, 10], capacity=True, water_filling=True, stream_snr=True, condition_number=True,
                         effective_rank=True, rank_threshold=0.5, precoders=2, combiners=1, singular_values=True,
                         certificate=True)
    s = np.linalg.svd(h.astype(np.complex128), compute_uv=False)
    np.testing.assert_allclose(result.singular_values, s, rtol=1e-4)
    np.testing.assert_allclose(result.stream_snr, s[..., None, :] ** 2 * np.array([1, 10])[:, None] / 4, rtol=1e-4)
    np.testing.assert_allclose(result.condition_number, s[..., 0] / s[..., -1], rtol=1e-3)
    p = s / s.sum(-1, keepdims=True)
    np.testing.assert_allclose(result.effective_rank, np.exp(-(p * np.log(p)).sum(-1)), rtol=1e-4)
    assert np.array_equal(result.threshold_rank, (s > 0.5 * s[..., :1]).sum(-1))
    assert (result.precoders.shape, result.combiners.shape) == ((6, 4, 4, 2), (6, 4, 3, 1))
    reached = result.combiners.conj().swapaxes(-1, -2) @ h @ result.precoders[..., :1]
    np.testing.assert_allclose(np.abs(reached[..., 0, 0]), s[..., 0], rtol=1e-4)
    assert result.certificate.residual < 1e-5 and (result.status == 0).all()
    alone = client.mimo(h, snr_db=10, stream_snr=True)
    assert alone.stream_snr.shape == (6, 4, 3) and alone.capacity is None and alone.singular_values is None


def test_lists_and_coroutines(address, client, h):
    stacks = [h[0], h[1, :2, :2].astype(np.complex128), h[2, 0]]
    mine = client.capacity(stacks, 10)
    assert [np.shape(c) for c in mine] == [(4,), (2,), ()]

    async def ask():
        async with svdserve.AsyncClient(address) as other:
            return await asyncio.gather(other.capacity(stacks, 10), other.precoders(h, 1),
                                        other.mimo(h, effective_rank=True))

    theirs, v, numbers = asyncio.run(ask())
    assert all(np.array_equal(x, y) for x, y in zip(mine, theirs))
    assert np.array_equal(v, client.precoders(h, 1)) and numbers.effective_rank.shape == (6, 4)


@pytest.mark.parametrize("ask, field", [
    (lambda c, h: c.capacity(h, np.nan), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, [0, np.inf]), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, 301), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, []), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, np.zeros(65)), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, [[1]]), "options.mimo.snr_db"),
    (lambda c, h: c.capacity(h, 1, group_size=3), "options.mimo.group_size"),
    (lambda c, h: c.capacity(h, 1, group_size=0), "options.mimo.group_size"),
    (lambda c, h: c.precoders(h, 4), "options.mimo.precoder_columns"),
    (lambda c, h: c.precoders(h, 0), "options.mimo.precoder_columns"),
    (lambda c, h: c.mimo(h), "options.mimo"),
    (lambda c, h: c.mimo(h, effective_rank=True, snr_db=3), "options.mimo.snr_db"),
    (lambda c, h: c.mimo(h, rank_threshold=1), "options.mimo.rank_threshold"),
    (lambda c, h: c.mimo(h, effective_rank=True, certificate=True), "options.certificate"),
])
def test_what_is_refused_is_named(client, h, ask, field):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        ask(client, h)
    assert refused.value.field == field
    argument = {"options.mimo.precoder_columns": "rank"}.get(field, field.rpartition(".")[2])
    assert str(refused.value).startswith(f"{argument}: ")


def test_the_answer_is_small(fake, h):
    """A capacity crosses the wire, not the matrices: 4 bytes of answer for 96 of question."""
    with svdserve.Client(fake.address) as client:
        np.testing.assert_allclose(client.capacity(h, 10), equal_power(h, 10), rtol=1e-5)
    (request,) = fake.requests
    assert len(request.matrices.data) == h.nbytes and not request.options.mimo.singular_values


def test_pieces_of_whole_groups_are_joined(fake, h):
    with svdserve.Client(fake.address, piece_bytes=1000) as client:
        summed = client.capacity(h, [0, 10], group_size=2)
    assert len(fake.requests) > 1 and all(r.matrices.count % 2 == 0 for r in fake.requests)
    assert summed.shape == (6, 2, 2)
    np.testing.assert_allclose(summed[..., 1], equal_power(h, 10).reshape(6, 2, 2).sum(-1), rtol=1e-5)


def closed_form(h, snr_db):
    """The gradient of the capacity without singular vectors: c H (1 / SNR' + H^H H)^-1, c = 2 / ln 2."""
    h = h.astype(np.complex128)
    gram = np.conj(h).swapaxes(-1, -2) @ h
    return 2 / np.log(2) * h @ np.linalg.inv(h.shape[-1] / 10 ** (snr_db / 10) * np.eye(h.shape[-1]) + gram)


@pytest.mark.parametrize("order", ["C", "F"])
def test_gradient_of_the_capacity(client, h, order):
    channels = h if order == "C" else np.ascontiguousarray(h.swapaxes(-1, -2)).swapaxes(-1, -2)
    result = client.mimo(channels, snr_db=[0, 10], capacity=True, gradient=True)
    assert result.capacity_gradient.shape == (6, 4, 2, 3, 4) and result.capacity_gradient.dtype == np.complex64
    assert result.water_filling_gradient is None and result.effective_rank_gradient is None
    for i, db in enumerate((0, 10)):
        np.testing.assert_allclose(result.capacity_gradient[..., i, :, :], closed_form(h, db), atol=1e-4)
    one = client.mimo(channels, snr_db=10, capacity=True, gradient=True, group_size=2)
    assert one.capacity.shape == (6, 2)
    np.testing.assert_array_equal(one.capacity_gradient, result.capacity_gradient[..., 1, :, :])


def test_gradients_predict_differences(client, rng):
    h, d = rng.standard_normal((2, 5, 4, 3))
    numbers = dict(snr_db=3, capacity=True, water_filling=True, effective_rank=True)
    there, back = client.mimo(h + 1e-6 * d, **numbers), client.mimo(h - 1e-6 * d, **numbers)
    here = client.mimo(h, gradient=True, **numbers)
    for name in ("capacity", "water_filling", "effective_rank"):
        slope = (getattr(there, name) - getattr(back, name)) / 2e-6
        np.testing.assert_allclose((getattr(here, f"{name}_gradient") * d).sum((-1, -2)), slope, atol=1e-7)


def test_gradients_at_the_edges(client):
    bad = np.full((3, 2, 2), [[1, 0], [0, np.nan]])
    bad[0], bad[1] = np.eye(2), 0
    g = client.mimo(bad, snr_db=0, capacity=True, effective_rank=True, gradient=True)
    np.testing.assert_allclose(g.capacity_gradient[0], np.eye(2) / np.log(2) / 1.5, rtol=1e-12)
    assert not g.capacity_gradient[1].any() and not g.effective_rank_gradient[1].any()
    assert np.isnan(g.capacity_gradient[2]).all() and np.isnan(g.effective_rank_gradient[2]).all()
    with pytest.raises(svdserve.InvalidArgument, match="^gradient: is of capacity, water_filling and effective_rank"):
        client.mimo(bad, condition_number=True, gradient=True)
    with pytest.raises(svdserve.InvalidArgument, match="^gradient: of water_filling needs group_size 1"):
        client.mimo(bad[:2], snr_db=0, water_filling=True, gradient=True, group_size=2)
    assert client.mimo(np.zeros((0, 2, 3)), snr_db=0, capacity=True, gradient=True).capacity_gradient.shape == (0, 2, 3)


def test_gradients_of_larger_channels_in_many_pieces(start_server, rng):
    h = rng.standard_normal((40, 40, 36))
    with start_server() as address, svdserve.Client(address, piece_bytes=50_000) as client:
        g = client.mimo(h, snr_db=10, capacity=True, gradient=True).capacity_gradient
    np.testing.assert_allclose(g, closed_form(h, 10).real, atol=1e-12)
