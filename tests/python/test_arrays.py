"""The arrays that verbs return: whose memory they are, and of which kind."""

import asyncio
import itertools
import sys
import types

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
            x[...] = x


@pytest.mark.parametrize("verb", ["svdvals", "svd", "eigh"])
def test_arrays_of_large_matrices_are_writable(client, rng, verb):
    a = matrices(rng, 140, 140, dtype="f8")
    for x in arrays(VERBS[verb](client, a, progress=lambda p: None)):
        x[...] = x


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_copy_they_are_read_only(address, rng, verb):
    a = matrices(rng, 40, 4, 4)
    for settings in ({}, {"piece_bytes": 1000}):
        with svdserve.Client(address, **settings) as client:
            copied, viewed = (list(arrays(VERBS[verb](client, a, copy=copy))) for copy in (True, False))
        assert all(np.array_equal(x, y) for x, y in zip(copied, viewed))
        computed_here = (np.uint8, np.float64)  # statuses, and vectors_condition
        assert {x.flags.writeable for x in viewed if x.dtype not in computed_here} == {False}


def test_a_view_is_of_the_message(client, rng):
    a = matrices(rng, 40, 4, 4)
    u, s, vh = client.svd(a, copy=False)
    assert not u.flags.owndata and not any(x.base is None for x in (u, s, vh))
    first, second = client.svd([a, a[:, :2]], copy=False)
    assert not first.U.flags.writeable and not second.U.flags.writeable


# --- of which kind --------------------------------------------------------------------------------

class Device:
    """CuPy's notion of a device: new arrays lie on the current one."""

    current = None

    def __enter__(self):
        Device.current = self

    def __exit__(self, *_):
        Device.current = None


class Elsewhere:
    """An array that is not in the host's memory: NumPy cannot convert it."""

    def __init__(self, data, device=None):
        self.data, self.device = np.array(data), device or Device.current or Device()
        self.shape, self.dtype = self.data.shape, self.data.dtype

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


class OnDevice(Elsewhere):
    """In the manner of CuPy."""

    def get(self):
        return self.data


class Standard(Elsewhere):
    """By the array API standard."""

    def __array_namespace__(self):
        return types.SimpleNamespace(asarray=lambda array, device: Standard(array, device))

    def __dlpack_device__(self):
        return (2, 3)

    def __dlpack__(self, **options):
        assert options.pop("dl_device") == (1, 0)  # NumPy wants it in the host's memory
        return self.data.__dlpack__(**options)


class Exchanged:
    """An array that is known for DLPack alone."""

    def __init__(self, data, device=1):
        self.data, self.device = data, device

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if self.device != 1:
            raise BufferError("no copy")
        return self.data.__dlpack__(**options)


def of_torch(a, **options):
    return pytest.importorskip("torch").tensor(np.asarray(a), **options)


def of_jax(a):
    return pytest.importorskip("jax").numpy.asarray(a)


def of_dask(a):
    a = np.asarray(a)
    return pytest.importorskip("dask.array").from_array(a, chunks=(*(2 for _ in a.shape[:-2]), *a.shape[-2:]))


def of_cupy(a):
    return OnDevice(a)


def of_the_standard(a):
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("this NumPy does not ask for copies by DLPack")
    return Standard(a)


@pytest.fixture
def cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=OnDevice, asarray=OnDevice))


KINDS = {"cupy": of_cupy, "standard": of_the_standard, "torch": of_torch, "jax": of_jax, "dask": of_dask}


def numpys(x):
    return x.data if isinstance(x, Elsewhere) else np.asarray(x)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_out_is_of_the_kind_that_went_in(client, rng, kind, verb, copy):
    a = matrices(rng, 6, 4, 4)
    given = KINDS[kind](a)
    theirs, mine = (list(arrays(VERBS[verb](client, x, copy=copy))) for x in (given, a))
    assert len(theirs) == len(mine) and {type(x) for x in theirs} == {type(given)}
    if kind in ("cupy", "standard", "torch", "jax"):
        assert {x.device for x in theirs} == {given.device}
    for x, y in zip(theirs, mine):
        x = numpys(x)
        assert np.array_equal(x, y.astype(x.dtype)) and x.dtype == (np.float32 if kind == "jax" and y.dtype == "f8" else y.dtype)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("kind", [OnDevice, Standard])
def test_coroutines_take_them_too(address, rng, kind):
    if kind is Standard:
        of_the_standard(0)
    a = matrices(rng, 5, 3, 3)

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.svd(kind(a)), client.svdvals(a))

    theirs, mine = asyncio.run(ask())
    assert isinstance(theirs, svdserve.SVDResult) and {type(x) for x in arrays(theirs)} == {kind}
    assert isinstance(mine, np.ndarray) and np.allclose(theirs.S.data, mine, rtol=1e-6)


@pytest.mark.usefixtures("cupy")
def test_large_matrices_and_other_arguments_are_of_any_kind(client, rng):
    g, j = matrices(rng, 20, 8, dtype="f8"), np.repeat([1, -1], 4)
    theirs, mine = client.hsvd(OnDevice(g), OnDevice(j)), client.hsvd(g, j)
    assert {type(x) for x in arrays(theirs)} == {OnDevice} and np.array_equal(theirs.S.data, mine.S)
    assert theirs.summaries[0].rotations == mine.summaries[0].rotations
    assert isinstance(client.svdvals(g, progress=lambda p: None), np.ndarray)
    a = matrices(rng, 4, 4, dtype="f8")
    w, v = client.eig(a, start=OnDevice(np.eye(4)))
    assert isinstance(w, np.ndarray) and np.allclose(a @ v, v * w)
    assert client.capacity(a, OnDevice([1.0, 2.0])).shape == (2,)


@pytest.mark.usefixtures("cupy")
def test_a_list_may_be_of_several_kinds(client, rng):
    a, b = matrices(rng, 3, 4, 4), matrices(rng, 5, 2)
    first, second, third = client.svd([OnDevice(a), b, OnDevice(b)])
    assert (type(first.U), type(second.U), type(third.U)) == (OnDevice, np.ndarray, OnDevice)
    assert np.array_equal(second.U, third.U.data)
    stacked = client.svdvals([OnDevice(a), OnDevice(a)])  # of one shape: one stack
    assert isinstance(stacked, OnDevice) and stacked.shape == (2, 3, 4)


def test_dlpack_alone_gives_numpys_arrays(client, rng):
    a = matrices(rng, 3, 4, 4)
    assert np.array_equal(client.svdvals(Exchanged(a)), client.svdvals(a))
    with pytest.raises(TypeError, match="^a: Exchanged cannot be copied to the host's memory by DLPack .*; pass it as a NumPy"):
        client.svdvals(Exchanged(a, device=2))


def test_what_torch_users_expect(client, rng):
    torch = pytest.importorskip("torch")
    t = of_torch(matrices(rng, 7, 4, 3))
    assert torch.allclose(client.svdvals(t.mH), torch.linalg.svdvals(t))
    assert torch.allclose(client.svdvals(torch.imag(t).mT), torch.linalg.svdvals(t.imag))  # a view with a negative bit
    u, s, vh = client.svd(t, False)
    assert torch.allclose(u * s[:, None] @ vh, t, atol=1e-5)
    u *= 2  # without torch's warning of memory that is read-only
    for narrow, wide in ((torch.bfloat16, torch.float32), (torch.half, torch.float32), (torch.complex32, torch.complex64)):
        small = torch.ones(2, 2, dtype=torch.float32).to(narrow)
        assert client.svdvals(small).dtype == torch.float32 and torch.equal(client.svdvals(small), client.svdvals(small.to(wide)))
    with pytest.raises(TypeError, match=r"a: requires gradients.*svdserve.torch.*pass a.detach\(\), or call under torch.no_grad\(\)"):
        client.svdvals(t.requires_grad_())
    assert not client.svdvals(t.detach()).requires_grad
    with torch.no_grad():
        assert client.svdvals(torch.nn.Parameter(t)).shape == (7, 3)
    with pytest.raises(TypeError, match=r"h: must be a dense tensor.*pass h.to_dense\(\)"):
        client.capacity(torch.eye(3).to_sparse(), 3)


def test_what_jax_users_expect(client):
    jax = pytest.importorskip("jax")
    x = jax.numpy.eye(3, dtype="bfloat16")
    assert client.svdvals(x).dtype == "float32"
    with pytest.raises(TypeError, match="a: is traced by JAX.*svdserve.jax.*jax.pure_callback"):
        jax.jit(client.svdvals)(jax.numpy.eye(3))


def test_dask_keeps_its_chunks(client, rng):
    pytest.importorskip("dask.array")
    d = of_dask(matrices(rng, 6, 4, 3))
    u, s, vh = client.svd(d, False)
    assert u.chunks == ((2, 2, 2), (4,), (3,)) and s.chunks == ((2, 2, 2), (3,))
    assert client.capacity(d, 3, group_size=3).chunks == ((2,),)
