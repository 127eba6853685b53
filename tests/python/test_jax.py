"""svdserve.jax: gradients beside differences, under jax.jit and jax.vmap; and JAX's conjugate convention."""

import importlib.util

import numpy as np
import pytest

import svdserve
from svdserve import linalg

if importlib.util.find_spec("jax") is None:
    pytest.skip("JAX is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax.test_util import check_grads

import svdserve.jax as sj


@pytest.fixture(autouse=True)
def shared(address):
    """The client that the functions share."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    with svdserve.Client(address) as client:
        linalg.use(client)
        yield client
        jax.effects_barrier()
        linalg.use(None)
    jax.config.update("jax_enable_x64", before)


def random(rng, *shape, real=False):
    a = rng.standard_normal(shape)
    return jnp.asarray(a if real else a + 1j * rng.standard_normal(shape))


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


def spectral(a, f):
    """U f(S) V^H."""
    u, s, vh = sj.svd(a)
    return (u * f(s)[..., None, :]) @ vh


def eigh_of(a):
    w, v = sj.eigh(a + adjoint(a))
    return w, abs(v), (v * jnp.cos(w)[..., None, :]) @ adjoint(v)


FUNCTIONS = {
    "capacity": lambda h: sj.capacity(h, [0, 10]),
    "water-filling": lambda h: sj.capacity(h, 15, water_filling=True),
    "log_det": lambda h: sj.log_det(h, 3),
    "effective_rank": sj.effective_rank,
    "svdvals": sj.svdvals,
    "svd": lambda a: (spectral(a, jnp.exp), spectral(a, jnp.ones_like), abs(sj.svd(a).U[..., :1])),
    "eigh": eigh_of,
}


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(rng, name, real):
    for shape in ((2, 3, 3),) if name == "eigh" else ((2, 3, 3), (2, 4), (1, 4, 2)):
        a = random(rng, *shape, real=real)
        check_grads(FUNCTIONS[name], (a,), order=1, modes=["rev"])
        check_grads(jax.jit(FUNCTIONS[name]), (a,), order=1, modes=["rev"])


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("values", [(2, 2, 2), (3, 1, 1), (3, 1, 0), (0, 0, 0)])
def test_equal_and_zero_values(rng, values, real):
    u, v = (jnp.linalg.qr(random(rng, 3, 3, real=real))[0] for _ in range(2))
    a = (u * jnp.asarray(values, float)) @ v
    for name in ("capacity", "water-filling", "log_det"):
        check_grads(FUNCTIONS[name], (a,), order=1, modes=["rev"])
    check_grads(lambda a: (sj.svdvals(a) ** 4).sum(), (a,), order=1, modes=["rev"])
    if min(values) > 0:
        for function in (sj.effective_rank, lambda a: spectral(a, jnp.ones_like)):
            check_grads(function, (a,), order=1, modes=["rev"])
    assert jnp.isfinite(jax.grad(lambda a: abs(spectral(a, jnp.ones_like)).sum())(a)).all()


@pytest.mark.parametrize("real", [True, False])
def test_second_derivatives(rng, real):
    a = random(rng, 2, 3, 2, real=real)
    check_grads(sj.svdvals, (a,), order=2, modes=["rev"])
    check_grads(lambda a: spectral(a, jnp.exp), (a,), order=2, modes=["rev"])
    check_grads(lambda a: eigh_of(a)[2], (random(rng, 3, 3, real=real),), order=2, modes=["rev"])
    with pytest.raises(NotImplementedError, match="^h: .*svdserve.jax.svdvals"):
        jax.grad(lambda h: abs(jax.grad(lambda h: sj.log_det(h, 3).sum())(h)).sum())(a)


def test_the_convention_is_jaxs(rng):
    h = random(rng, 5, 3, 2)

    def slogdet(h):
        return jnp.linalg.slogdet(jnp.eye(3) + 5 * h @ adjoint(h))[1].sum()

    found = jax.grad(lambda h: sj.log_det(h, 10).sum())(h)
    assert np.allclose(found, jax.grad(slogdet)(h), atol=1e-12)
    theirs = jax.grad(lambda a: jnp.linalg.svd(a, compute_uv=False)[..., 0].sum())(h)
    assert np.allclose(jax.grad(lambda a: sj.svdvals(a)[..., 0].sum())(h), theirs, atol=1e-12)


def test_transforms(rng):
    h = random(rng, 5, 3, 2)
    one = jax.vmap(jax.grad(lambda h: sj.capacity(h, 10)))(h)
    assert np.array_equal(one, jax.jit(jax.grad(lambda h: sj.capacity(h, 10).sum()))(h))
    assert np.array_equal(jax.vmap(lambda h: sj.capacity(h, [1, 2]), in_axes=1, out_axes=1)(h.swapaxes(0, 1)).T,
                          sj.capacity(h, [1, 2]))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda h: sj.capacity(h, 10), (h,), (h,))


def test_a_step_is_one_call(address, rng):
    calls = []

    class Counting(svdserve.Client):
        def _run(self, call, *rest):
            calls.append((call.named[0], call.query.vectors, bool(call.query.mimo and call.query.mimo.gradient)))
            return super()._run(call, *rest)

    h = random(rng, 4, 3, 3)
    with Counting(address) as client:
        jax.jit(jax.value_and_grad(lambda h: sj.capacity(h, 3, client=client).sum()))(h)[1].block_until_ready()
        sj.effective_rank(h, client=client).block_until_ready()
        jax.grad(lambda h: sj.svdvals(h, client=client).sum())(h).block_until_ready()
        sj.svdvals(h, client=client).block_until_ready()
        jax.vmap(jax.grad(lambda h: sj.log_det(h, 3, client=client)))(h).block_until_ready()
    assert calls == [("mimo", "none", True), ("mimo", "none", False), ("svd", "thin", False), ("svdvals", "none", False),
                     ("mimo", "none", True)]


def test_kinds_of_arrays(rng):
    assert sj.svdvals([[3, 0], [0, 2]]).tolist() == pytest.approx([3, 2])
    for dtype in ("bfloat16", "float16", "float32", "complex64"):
        a = random(rng, 3, 2, 2, real=dtype != "complex64").astype(dtype)
        u, s, vh = found = sj.svd(a)
        assert u.dtype == vh.dtype == dtype and s.dtype == ("float32" if dtype == "complex64" else dtype)
        assert isinstance(found, svdserve.SVDResult) and found.status.tolist() == [0, 0, 0]
        assert jax.grad(lambda h: sj.log_det(h, 3).sum())(a).dtype == dtype
    jax.config.update("jax_enable_x64", False)
    assert sj.svdvals(jnp.eye(3, dtype=int)).dtype == "float32" == sj.capacity(jnp.eye(2), 3).dtype
    assert sj.svd(jnp.ones((2, 0, 3))).S.shape == (2, 0)
    assert jax.grad(lambda h: sj.capacity(h, [3]).sum())(jnp.ones((0, 2, 2))).shape == (0, 2, 2)
    gradient = jax.grad(lambda h: sj.capacity(h, 3).sum())(jnp.ones((2, 2, 2)).at[0, 0, 0].set(jnp.nan))
    assert jnp.isnan(gradient[0]).all() and jnp.isfinite(gradient[1]).all()


def test_mistakes():
    with pytest.raises(np.linalg.LinAlgError, match="at least two-dimensional"):
        sj.svdvals(jnp.ones(3))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        sj.eigh(jnp.ones((2, 3)))
    for wrong in ([[1.0]], [], "ten"):
        with pytest.raises(svdserve.InvalidArgument, match="^snr_db: must be"):
            sj.capacity(jnp.eye(2), wrong)
    with pytest.raises(TypeError, match="^snr_db: is traced by JAX"):
        jax.jit(lambda snr: sj.capacity(jnp.eye(2), snr))(3.0)
    nobody = svdserve.Client("127.0.0.1:1", retry=svdserve.RetryPolicy(max_attempts=1))
    with pytest.raises(Exception, match="no svdserve server responds at 127.0.0.1:1"):
        sj.svdvals(jnp.eye(2), client=nobody).block_until_ready()
