"""The arrays that verbs return: whose memory they are, and of which kind."""

import itertools

import numpy as np
import pytest

import svdserve


def matrices(rng, *shape, dtype="c8"):
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else a).astype(dtype)


# --- whose memory ---------------------------------------------------------------------------------

#: Every verb with all of its arrays: how it is called for general and for square matrices.
VERBS = {
    "svdvals": lambda client, a, **o: client.svdvals(a, return_status=True, **o),
    "svd": lambda client, a, **o: client.svd(a, certificate="matrix", **o),
    "svd, full": lambda client, a, **o: client.svd(a, True, **o),
    "svd, values": lambda client, a, **o: client.svd(a, compute_uv=False, **o),
    "eigh": lambda client, a, **o: client.eigh(a, certificate="matrix", **o),
    "eigvalsh": lambda client, a, **o: client.eigvalsh(a, return_status=True, **o),
    "eig": lambda client, a, **o: client.eig(a, left=True, condition=a.shape[-1] < 33, **o),
    "eigvals": lambda client, a, **o: client.eigvals(a, return_status=True, **o),
    "capacity": lambda client, a, **o: client.capacity(a, [0, 10], **o),
    "capacity of one SNR": lambda client, a, **o: client.capacity(a, 10, **o),
    "precoders": lambda client, a, **o: client.precoders(a, 2, **o),
    "mimo": lambda client, a, **o: client.mimo(a, snr_db=3, capacity=True, water_filling=True, stream_snr=True,
                                               condition_number=True, effective_rank=True, rank_threshold=0.1, precoders=1,
                                               combiners=1, singular_values=True, certificate="matrix", **o),
}


def arrays(result):
    """Every array in the result of a verb."""
    if isinstance(result, svdserve.MimoResult | svdserve.Certificate):
        yield from itertools.chain.from_iterable(map(arrays, vars(result).values()))
    elif isinstance(result, tuple | list):
        yield from itertools.chain.from_iterable(map(arrays, result))
        yield from itertools.chain.from_iterable(map(arrays, getattr(result, "__dict__", {}).values()))
    elif hasattr(result, "shape"):
        yield result


@pytest.mark.parametrize("order", ["row-major", "column-major"])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_every_array_is_writable_and_has_its_own_memory(address, rng, verb, real, order):
    a = matrices(rng, 40, 4, 4, dtype="f4" if real else "c8")
    a = a if order == "row-major" else np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    for settings in ({}, {"piece_bytes": 1000}):  # one message; several that are joined
        with svdserve.Client(address, **settings) as client:
            found = list(arrays(VERBS[verb](client, a)))
        assert found and all(x.flags.writeable for x in found)
        for x, y in itertools.combinations([a, *found], 2):
            assert not np.shares_memory(x, y)
        for x in found:
            x *= 2


@pytest.mark.parametrize("verb", ["svdvals", "svd", "eigh"])
def test_arrays_of_large_matrices_are_writable(client, rng, verb):
    a = matrices(rng, 140, 140, dtype="f8")
    for x in arrays(VERBS[verb](client, a, progress=lambda p: None)):
        x *= 2


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_copy_they_are_read_only(address, rng, verb):
    a = matrices(rng, 40, 4, 4)
    for settings in ({}, {"piece_bytes": 1000}):
        with svdserve.Client(address, **settings) as client:
            copied, viewed = (list(arrays(VERBS[verb](client, a, copy=copy))) for copy in (True, False))
        assert all(np.array_equal(x, y) for x, y in zip(copied, viewed))
        assert {x.flags.writeable for x in viewed if x.dtype != np.uint8} == {False}


def test_a_view_is_of_the_message(client, rng):
    a = matrices(rng, 40, 4, 4)
    u, s, vh = client.svd(a, copy=False)
    assert not u.flags.owndata and not any(x.base is None for x in (u, s, vh))
    first, second = client.svd([a, a[:, :2]], copy=False)
    assert not first.U.flags.writeable and not second.U.flags.writeable
