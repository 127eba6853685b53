"""Matrices of 16-bit numbers: sent as they are, with results that have the bits of those of float32 or complex64."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import svdserve
from svdserve import linalg
from svdserve._codec import Operand

SHAPE = (37, 4, 4)


def half_pairs(rng, shape):
    return rng.standard_normal((*shape, 2)).astype(np.float16)


def samples(rng, shape):
    return rng.integers(-2**15, 2**15, shape, dtype=np.int16)


def complex_of(pairs):
    wide = pairs.astype(np.float32)
    return wide[..., 0] + 1j * wide[..., 1]


def bfloats(rng, shape):
    """bfloat16 of ml_dtypes, and the same as float32 by its bits."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return a, (a.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def kinds(rng, shape):
    """Operands of every type, each beside the same numbers in 32 bits and its name on the wire."""
    half, pairs, real, iq = (rng.standard_normal(shape).astype(np.float16), half_pairs(rng, shape), samples(rng, shape),
                             samples(rng, (*shape, 2)))
    yield "F16", half, half.astype(np.float32)
    yield "F16", half.astype(">f2"), half.astype(np.float32)
    yield "C32", svdserve.as_operand(pairs, pairs=True), complex_of(pairs)
    yield "I16", svdserve.as_operand(real), real.astype(np.float32)
    yield "I16", svdserve.as_operand(real, -15), np.float32(2.0**-15) * real
    yield "CI16", svdserve.as_operand(iq, -11, pairs=True), complex_of(iq) * np.float32(2.0**-11)
    try:
        yield "BF16", *bfloats(rng, shape)
    except pytest.skip.Exception:
        pass


def same(x, y):
    return x.dtype == y.dtype and np.array_equal(x, y, equal_nan=True)


def test_every_verb_has_the_bits_of_wider_matrices(client, rng):
    for _, narrow, wide in kinds(rng, SHAPE):
        assert same(client.svdvals(narrow), client.svdvals(wide))
        assert all(map(same, client.svd(narrow), client.svd(wide)))
        assert all(map(same, client.eigh(narrow), client.eigh(wide)))
        assert same(client.eigvalsh(narrow, "U"), client.eigvalsh(wide, "U"))
        assert all(map(same, client.eig(narrow), client.eig(wide)))
        assert all(map(same, client.eig(narrow, left=True, start=wide), client.eig(wide, left=True, start=wide)))
        assert same(client.capacity(narrow, [0, 10]), client.capacity(wide, [0, 10]))
        assert same(client.precoders(narrow, 2), client.precoders(wide, 2))
        options = {"snr_db": 3, "capacity": True, "effective_rank": True, "gradient": True}
        found, expected = client.mimo(narrow, **options), client.mimo(wide, **options)
        assert same(found.capacity_gradient, expected.capacity_gradient) and same(found.effective_rank, expected.effective_rank)


def test_shapes_layouts_and_pieces(client, rng, start_server):
    for shape in ((5, 3), (2, 3, 6, 2), (3, 40, 8), (4, 33, 33), (0, 3, 3), (1, 1)):
        for _, narrow, wide in kinds(rng, shape):
            assert same(client.svdvals(narrow), client.svdvals(wide))
            assert same(client.svdvals(narrow.swapaxes(-1, -2)), client.svdvals(wide.swapaxes(-1, -2)))
            assert same(client.svdvals(narrow[..., ::-1, :]), client.svdvals(wide[..., ::-1, :]))
            u, _, _ = client.svd(np.asfortranarray(narrow), False)
            assert same(u, client.svd(np.asfortranarray(wide), False)[0])
    with start_server("--max-message-bytes=64KiB") as address, svdserve.Client(address) as small:
        for _, narrow, wide in kinds(rng, (3000, 4, 4)):
            assert same(small.svdvals(narrow), small.svdvals(wide))


def test_groups_of_several_types(client, rng):
    narrow, wide = zip(*((n, w) for i, (_, n, w) in enumerate(kinds(rng, (4, 4))) for n, w in [(n[:1 + i % 3], w[:1 + i % 3])]))
    for found, expected in zip(client.svd(list(narrow)), client.svd(list(wide))):
        assert all(map(same, found, expected))


def test_the_asynchronous_client(client, address, rng):
    async def values(a):
        async with svdserve.AsyncClient(address) as c:
            return await c.svdvals(a)

    for _, narrow, wide in kinds(rng, SHAPE):
        assert same(asyncio.run(values(narrow)), client.svdvals(wide))


def test_large_matrices_are_widened_by_the_client(client, rng):
    for _, narrow, wide in kinds(rng, (40, 30)):
        found = client.svd(narrow, False, pivot_strategy="recursive")
        assert all(map(same, found, client.svd(wide, False, pivot_strategy="recursive")))
        assert len(found.summaries) == 1
    wide = np.tril(rng.standard_normal((20, 20))).astype(np.float16)
    assert same(client.hsvd(wide, [1] * 20, False), client.hsvd(wide.astype(np.float32), [1] * 20, False))


def test_numbers_that_are_not_finite_keep_to_themselves(client, rng):
    a = rng.standard_normal((3, 4, 4)).astype(np.float16)
    a[1, 0, 0], a[2, 3, 3] = np.nan, -np.inf
    values, status = client.svdvals(a, return_status=True)
    assert status.tolist() == [0, 1, 1] and np.isnan(values[1:]).all() and np.isfinite(values[0]).all()


def test_what_goes_on_the_wire(rng):
    for name, narrow, wide in kinds(rng, (6, 5)):
        operand, of_wide = Operand(narrow), Operand(wide)
        assert operand.matrix_bytes * 2 == of_wide.matrix_bytes == operand.large_bytes
        assert operand.data_type == svdserve._proto.DATA_TYPES[name] and operand.large_type == of_wide.data_type
        assert operand.element_type == of_wide.element_type
        (part, dtype), = operand.large_parts(0) if narrow.ndim > 2 else Operand(narrow[None]).large_parts(0)
        assert same(np.ascontiguousarray(part, dtype), wide)


def test_operands_share_memory():
    iq = np.zeros((3, 2, 2, 2), np.int16)
    operand = svdserve.as_operand(iq, -4, pairs=True)
    assert operand.shape == (3, 2, 2) and np.shares_memory(operand, iq)
    assert np.stack([operand, operand]).dtype == operand.dtype == operand.mT[1:].dtype if hasattr(operand, "mT") else True
    transposed = np.zeros((2, 3, 3), np.int16).transpose(1, 2, 0)  # the parts do not lie beside each other
    assert svdserve.as_operand(transposed, pairs=True).shape == (3, 3)


@pytest.mark.parametrize("a, options, error, message", [
    (np.zeros((2, 2)), {}, TypeError, "a: must be int16, but is float64"),
    (np.zeros((2, 2), np.float16), {}, TypeError, "a: must be int16, but is float16; float16 goes to a client as it is"),
    (np.zeros((2, 2), np.uint16), {"pairs": True}, TypeError, "a: must be int16 or float16, but is uint16"),
    (np.zeros((2, 2), np.int16), {"exponent": 113}, ValueError, "exponent: must be from -126 to 112, but is 113"),
    (np.zeros((2, 2), np.int16), {"exponent": 1.0}, TypeError, "exponent: must be an integer, but is 1.0"),
    (np.zeros((2, 2), np.int16), {"exponent": -127}, ValueError, "exponent: must be from -126 to 112, but is -127"),
    (np.zeros((2, 2), np.float16), {"exponent": 1, "pairs": True}, ValueError,
     "exponent: is for integers, and must be 0 for float16, but is 1"),
    (np.zeros((2, 3), np.int16), {"pairs": True}, ValueError,
     r"a: its last dimension must be 2, the parts of a number, but its shape is \(2, 3\)")])
def test_mistakes(a, options, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        svdserve.as_operand(a, **options)


def test_int16_alone_is_computed_as_by_numpy(client, rng):
    assert client.svdvals(samples(rng, (3, 3))).dtype == np.float64


def test_other_structured_types_are_rejected(client):
    for dtype in ([("a", "<i2")], [("real", "<f4"), ("imag", "<f4")], [("real*2^0", "<i2"), ("x", "<i2")]):
        with pytest.raises(TypeError, match="is unsupported in svdserve"):
            client.svdvals(np.zeros((2, 2), dtype))


def test_linalg_rejects_them_as_numpy_does(address):
    linalg.use(address)
    half = np.eye(2, dtype=np.float16)
    try:
        for function in (linalg.svd, linalg.svdvals, linalg.eigh, linalg.eigvalsh, linalg.eig, linalg.eigvals, linalg.pinv,
                         linalg.cond, linalg.matrix_rank, lambda a: linalg.norm(a, 2),
                         lambda a: linalg.svd(a, hermitian=True)):
            for a, name in ((half, "float16"), (svdserve.as_operand(np.eye(2, dtype=np.int16)), "int16 with an exponent")):
                with pytest.raises(TypeError, match=f"array type {name} is unsupported in linalg; convert it to float32"):
                    function(a)
        assert linalg.norm(half) == np.linalg.norm(half)
        with pytest.raises(TypeError, match="int16 with an exponent is unsupported"):  # NumPy drops the exponent
            linalg.norm(svdserve.as_operand(np.eye(2, dtype=np.int16), exponent=3))
    finally:
        linalg.use(None)


def test_tensors(client, rng):
    torch = pytest.importorskip("torch")
    for dtype, wide in ((torch.half, torch.float32), (torch.bfloat16, torch.float32), (torch.complex32, torch.complex64)):
        t = torch.from_numpy(rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE))
        t = (t if dtype.is_complex else t.real).to(dtype)
        for view in (t, t.mT, t[1:, :2], t.mH):
            assert torch.equal(client.svdvals(view), client.svdvals(view.to(wide)))
        u, s, vh = client.svd(t)
        assert (u.dtype, s.dtype, vh.dtype) == (wide, torch.float32, wide)


def test_arrays_of_jax(client):
    jnp = pytest.importorskip("jax.numpy")
    for dtype in ("bfloat16", "float16"):
        x = jnp.arange(18, dtype=dtype).reshape(2, 3, 3)
        assert same(np.asarray(client.svdvals(x)), np.asarray(client.svdvals(x.astype("float32"))))
