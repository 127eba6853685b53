"""Singular values, eigenvalues and MIMO numbers of JAX arrays, with gradients; a server computes them.

    >>> import jax, svdserve.jax as sj
    >>> from svdserve import linalg
    >>> linalg.use(address)
    >>> gradient = jax.jit(jax.grad(lambda h: sj.capacity(h, snr_db=10)))
    >>> print(gradient(jax.numpy.eye(2)).diagonal().round(4))
    [2.4045 2.4045]
    >>> linalg.use(None)

The functions are those of svdserve.torch: the same arguments and results, and the same gradients where values are equal or
zero. They work under jax.jit, jax.grad, jax.vjp and jax.vmap, by jax.pure_callback and jax.custom_vjp. vmap makes one call
of the whole batch. Forward mode (jvp, jacfwd) is a TypeError of JAX. Gradients of real functions of complex arrays follow
JAX: they are the conjugates of torch's. Half precision is computed in float32. float64 and complex128 need jax_enable_x64.

A compiled function keeps its `client`. With None it asks svdserve.linalg for the shared client in every call. JAX may leave
out a call whose result is not used, and repeat one. A failed call raises JAX's error, with the message of ours inside.

capacity, log_det and effective_rank take their gradient along with the value where JAX differentiates them, else the value
alone. These gradients have no derivatives: differentiating twice raises NotImplementedError. svdvals asks for thin vectors
where it is differentiated. svdvals, svd and eigh have derivatives of any order. A loss that depends on phases of complex
vectors has no gradient, but JAX cannot raise for it: the result is that of vectors whose phases turn as little as they can.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np

from . import linalg
from ._arrays import A
from ._calls import in_the_callers_words
from ._client import Client
from ._gradients import formulas
from ._query import snrs
from .errors import invalid_argument
from .values import EighResult, SVDResult

__all__ = ["capacity", "effective_rank", "eigh", "log_det", "svd", "svdvals"]

jax: Any = importlib.import_module("jax")  # no type checker of ours has it
jnp: Any = jax.numpy


def svdvals(a: A, *, client: Client | None = None) -> A:
    """Singular values, largest first, shape (..., min(m, n)). Gradients: svdserve.torch.svdvals."""
    values: A = _in_its_precision(a, _svdvals, client)[0]
    return values


def svd(a: A, *, client: Client | None = None) -> SVDResult[A, A, A]:
    """The thin decomposition a = U @ diag(S) @ Vh, which unpacks as that of jax.numpy.linalg.svd(a, full_matrices=False).

    Gradients: svdserve.torch.svd.
    """
    u, s, vh, status = _in_its_precision(a, _svd, client)
    result: SVDResult[A, A, A] = SVDResult(u, s, vh)
    return result.reported(status, None, ())


def eigh(a: A, *, client: Client | None = None) -> EighResult[A, A, A]:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices. Gradients: svdserve.torch.eigh.

    The lower triangle is read. jax.numpy.linalg.eigh averages both triangles.
    """
    w, v, status = _in_its_precision(a, _eigh, client)
    result: EighResult[A, A, A] = EighResult(w, v)
    return result.reported(status, None, ())


def capacity(h: A, snr_db: float | Iterable[float], water_filling: bool = False, *, client: Client | None = None) -> A:
    """Capacity of MIMO channels in bit/s/Hz, as Client.capacity: (..., n_snr), or (...) for a single snr_db.

    snr_db is no traced array: it is part of the call. Gradients: svdserve.torch.capacity.
    """
    return _capacity(h, snr_db, "water_filling" if water_filling else "capacity", client, 1)


def log_det(h: A, snr_db: float | Iterable[float], *, client: Client | None = None) -> A:
    """ln det(I + snr / n h h^H) with snr = 10^(snr_db / 10): ln 2 times the capacity at equal power."""
    return _capacity(h, snr_db, "capacity", client, math.log(2))


def effective_rank(h: A, *, client: Client | None = None) -> A:
    """exp of the entropy of s_i / sum(s), shape (...). Gradients: svdserve.torch.effective_rank."""
    rank: A = _in_its_precision(h, _number, _Number(client, "effective_rank"))
    return rank


def _capacity(h: A, snr_db: Any, name: str, client: Client | None, unit: float) -> A:
    if isinstance(snr_db, jax.core.Tracer):
        raise TypeError("snr_db: is traced by JAX, and must be numbers; make it a static argument")
    with in_the_callers_words("capacity", "h"):
        decibels, is_scalar = snrs(snr_db)
        if not decibels:
            raise invalid_argument("options.mimo.snr_db", "must be one SNR at least")
    number = _Number(client, name, decibels[0] if is_scalar else decibels)
    capacities: A = _in_its_precision(h, _number, number, unit)
    return capacities


# A function (array, question) of one precision.


def _in_its_precision(a: Any, function: Callable[..., Any], question: Any, unit: float = 1) -> Any:
    """The function of `a` in its precision; a number times `unit`."""
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if function is _eigh and a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    is_half = a.dtype.name in ("float16", "bfloat16")
    real = np.finfo(np.float64 if jax.config.jax_enable_x64 else np.float32).dtype
    wide = a.astype(np.float32) if is_half else a if jnp.issubdtype(a.dtype, jnp.inexact) else a.astype(real)
    found = function(wide, question)
    found = found if unit == 1 else found * unit
    return jax.tree_util.tree_map(lambda x: x.astype(a.dtype) if is_half and x.dtype == np.float32 else x, found)


def _shape(a: Any, *trailing: int, dtype: Any = None) -> Any:
    return jax.ShapeDtypeStruct((*a.shape[:-2], *trailing), a.dtype if dtype is None else dtype)


def _real(a: Any) -> np.dtype[Any]:
    return np.finfo(a.dtype).dtype


def _call(ask: Callable[[Client, np.ndarray], Any], given: Client | None, shapes: Any, a: Any) -> Any:
    """The results that `ask` has of a server when the program runs."""

    def answer(array: Any) -> Any:
        found = ask(linalg._server() if given is None else given, np.asarray(array))
        return jax.tree_util.tree_map(lambda x, shape: np.asarray(x, shape.dtype), found, shapes)

    return jax.pure_callback(answer, shapes, a, vmap_method="expand_dims")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _svdvals(a: Any, client: Client | None) -> Any:
    k = min(a.shape[-2:])
    return _call(lambda c, x: (c.svdvals(x),), client, (_shape(a, k, dtype=_real(a)),), a)


def _svdvals_forward(a: Any, client: Client | None) -> Any:
    u, s, vh, _ = _svd(a, client)
    return (s,), (u, s, vh)


def _svdvals_backward(client: Client | None, saved: Any, grads: Any) -> Any:
    u, s, vh = saved
    return (formulas.of_values(u, s, vh, grads[0], jnp).conj(),)


_svdvals.defvjp(_svdvals_forward, _svdvals_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _svd(a: Any, client: Client | None) -> Any:
    def ask(c: Client, x: np.ndarray) -> Any:
        u, s, vh = found = c.svd(x, full_matrices=False)
        return u, s, vh, found.status

    m, n = a.shape[-2:]
    k = min(m, n)
    shapes = _shape(a, m, k), _shape(a, k, dtype=_real(a)), _shape(a, k, n), _shape(a, dtype=np.uint8)
    return _call(ask, client, shapes, a)


def _svd_forward(a: Any, client: Client | None) -> Any:
    found = _svd(a, client)  # itself, so that its derivative is known
    return found, found[:3]


def _svd_backward(client: Client | None, saved: Any, grads: Any) -> Any:
    (u, s, vh), (gu, gs, gvh, _) = saved, grads
    return (formulas.of_svd(u, s, vh, gu.conj(), gs, gvh.conj(), jnp).conj(),)


_svd.defvjp(_svd_forward, _svd_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _eigh(a: Any, client: Client | None) -> Any:
    def ask(c: Client, x: np.ndarray) -> Any:
        w, v = found = c.eigh(x)
        return w, v, found.status

    n = a.shape[-1]
    return _call(ask, client, (_shape(a, n, dtype=_real(a)), _shape(a, n, n), _shape(a, dtype=np.uint8)), a)


def _eigh_forward(a: Any, client: Client | None) -> Any:
    found = _eigh(a, client)
    return found, found[:2]


def _eigh_backward(client: Client | None, saved: Any, grads: Any) -> Any:
    (w, v), (gw, gv, _) = saved, grads
    return (formulas.of_eigh(w, v, gw, gv.conj(), jnp).conj(),)


_eigh.defvjp(_eigh_forward, _eigh_backward)


@dataclasses.dataclass(frozen=True)
class _Number:
    """A MIMO number."""

    client: Client | None
    name: str
    snr_db: Any = None  # a float or a tuple

    def of(self, a: Any, gradient: bool) -> Any:
        """The numbers, and their gradients if they are wanted."""

        def ask(c: Client, x: np.ndarray) -> Any:
            found = c.mimo(x, **{self.name: True}, snr_db=self.snr_db, gradient=gradient)
            return tuple(getattr(found, name) for name in (self.name, f"{self.name}_gradient")[:1 + gradient])

        each = (len(self.snr_db),) if isinstance(self.snr_db, tuple) else ()
        shapes = _shape(a, *each, dtype=_real(a)), _shape(a, *each, *a.shape[-2:])
        return _call(ask, self.client, shapes[:1 + gradient], a)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _number(h: Any, number: _Number) -> Any:
    return number.of(h, False)[0]


def _number_forward(h: Any, number: _Number) -> Any:
    return _number_and_gradient(h, number)


def _number_backward(number: _Number, gradient: Any, g: Any) -> Any:
    each = g[..., None, None] * gradient.conj()
    return (each.sum(-3) if isinstance(number.snr_db, tuple) else each,)


_number.defvjp(_number_forward, _number_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _number_and_gradient(h: Any, number: _Number) -> Any:
    return number.of(h, True)


def _refuse(h: Any, number: _Number) -> Any:
    raise NotImplementedError("h: the gradients of capacity, log_det and effective_rank have no derivatives. For second "
                              "ones write the function with svdserve.jax.svdvals")


_number_and_gradient.defvjp(_refuse, _refuse)
