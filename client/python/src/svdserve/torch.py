"""Singular values, eigenvalues and MIMO numbers of torch tensors, with gradients; a server computes them.

    >>> import torch, svdserve.torch as st
    >>> from svdserve import linalg
    >>> linalg.use(address)
    >>> h = torch.eye(2, dtype=torch.complex64, requires_grad=True)
    >>> c = st.capacity(h, snr_db=10)
    >>> c.backward()
    >>> print(round(c.item(), 4), h.grad.diagonal().real)
    5.1699 tensor([2.4045, 2.4045])
    >>> linalg.use(None)

Tensors are real or complex, of shape (..., m, n), on any device. Results have the same device and precision. Half precision
is sent as it is and computed in float32. `client` is a Client; None is the one that svdserve.linalg shares, see
linalg.use().

capacity, log_det and effective_rank take their gradient G = U diag(df(s)) V^H along with the value, if `h` requires one. So
a step of an optimisation is one call, and no vectors travel. These gradients have no derivatives: a second backward raises
NotImplementedError. svdvals asks for thin vectors if `a` requires gradients, else for values alone. svdvals, svd and eigh
have derivatives of any order. torch.func.grad, vjp and vmap work, and vmap makes one call of the whole batch. Forward mode
(jvp, jacfwd) does not, nor can torch.compile look inside: exclude a call by torch.compiler.disable. The documentation of
each function says what holds for values that are equal or zero. A matrix with an infinity or a NaN gets NaN, as does its
gradient.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import linalg
from ._arrays import A
from ._client import Client
from ._gradients import formulas
from .values import EighResult, SVDResult

__all__ = ["capacity", "effective_rank", "eigh", "log_det", "svd", "svdvals"]

torch: Any = importlib.import_module("torch")  # no type checker of ours has it


def svdvals(a: A, *, client: Client | None = None) -> A:
    """Singular values, largest first, shape (..., min(m, n)).

    The gradient of a value s_i is u_i v_i^H. Functions that do not depend on the order, such as norms, have the right
    gradient where values are equal. One of equal values alone has no derivative there: it gets the one of its vectors.
    Nor has a value that is zero, to which the gradient adds nothing; so the nuclear norm has its smallest subgradient.

    Raises:
        As Client.svdvals does.
    """
    return _svd(a, client).S if _wants_gradient(a) else _asked(a, "a", _Values(client))[0]


def svd(a: A, *, client: Client | None = None) -> SVDResult[A, A, A]:
    """The thin decomposition a = U @ diag(S) @ Vh, which unpacks as that of torch.linalg.svd(a, full_matrices=False).

    A real pair of vectors is determined up to its sign, a complex one up to a phase. A loss that changes with the phase has
    no gradient: backward raises ValueError.

    Vectors of equal values may be turned among each other, and have no derivative. Values are equal here if they differ by
    at most max(m, n) eps times the largest. Between these the part of the gradient that would be infinite is zero. The
    gradient is still right for functions of U @ Vh, and of projectors on all vectors of equal values. It lacks a part for
    others, such as U @ diag(f(S)) @ Vh: turn to svdvals, or to a itself, where values repeat. Values that are zero add
    nothing through their part of U and V outside of each other's span.

    Raises:
        As Client.svd does.
    """
    return _svd(a, client)


def eigh(a: A, *, client: Client | None = None) -> EighResult[A, A, A]:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices, as torch.linalg.eigh(a).

    The lower triangle is read. The gradient is Hermitian, that among Hermitian matrices. Equal eigenvalues and phases are
    as in svd: right for functions of eigenvalues that do not depend on their order, and of projectors on all vectors of
    equal eigenvalues. Zero is a value like others.

    Raises:
        As Client.eigh does.
    """
    w, v, status = _asked(a, "a", _Eigh(client))
    result: EighResult[A, A, A] = EighResult(w, v)
    return result.reported(status, None, ())


def capacity(h: A, snr_db: float | Iterable[float], water_filling: bool = False, *, client: Client | None = None) -> A:
    """Capacity of MIMO channels in bit/s/Hz, as Client.capacity: (..., n_snr), or (...) for a single snr_db.

    Equal and zero values need no care: the gradient is that of log2 det(I + snr / n h h^H), which is smooth. With
    water-filling it is continuous, too, also where a stream gets its first power.

    Raises:
        As Client.mimo does.
    """
    return _capacity(h, snr_db, "water_filling" if water_filling else "capacity", client, 1)


def log_det(h: A, snr_db: float | Iterable[float], *, client: Client | None = None) -> A:
    """ln det(I + snr / n h h^H) with snr = 10^(snr_db / 10), h of shape (..., m, n): ln 2 times the capacity at equal power.

    Shapes, values that are equal or zero, and errors are those of capacity.
    """
    return _capacity(h, snr_db, "capacity", client, math.log(2))


def effective_rank(h: A, *, client: Client | None = None) -> A:
    """exp of the entropy of s_i / sum(s), shape (...): Roy and Vetterli (2007).

    Equal values need no care. Where a value is zero there is no derivative: the rank grows like s ln(1 / s) in every
    direction. Such values add nothing to the gradient, which is that among matrices of the same rank. One that rounding
    leaves in place of zero adds a part along its own vectors, which is no direction among these. A zero matrix has the
    gradient zero.

    Raises:
        As Client.mimo does.
    """
    return _asked(h, "h", _Number(client, "effective_rank", wanted=_wants_gradient(h)))[0]


def _capacity(h: A, snr_db: Any, name: str, client: Client | None, unit: float) -> A:
    if _wants_gradient(snr_db):
        raise TypeError("snr_db: has no gradient; pass snr_db.detach()")
    return _asked(h, "h", _Number(client, name, snr_db, _wants_gradient(h)), unit)[0]


def _svd(a: A, client: Client | None) -> SVDResult[A, A, A]:
    u, s, vh, status = _asked(a, "a", _Svd(client))
    result: SVDResult[A, A, A] = SVDResult(u, s, vh)
    return result.reported(status, None, ())


# A question says what to ask a server about a tensor, and how the gradient is made of the answer.


@dataclasses.dataclass(frozen=True)
class _Question:
    given: Client | None

    results = 1  # The first tensors of the answer, those that are differentiated.
    repeats = True  # Whether the gradient may be differentiated.

    @property
    def client(self) -> Client:
        return linalg._server() if self.given is None else self.given

    def ask(self, a: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def gradient(self, answer: list[Any], grads: tuple[Any, ...]) -> Any:
        """With respect to `a`; not all of `grads`, those of the results, are None."""
        raise NotImplementedError


class _Values(_Question):
    def ask(self, a: Any) -> tuple[Any, ...]:
        return (self.client.svdvals(a),)


class _Svd(_Question):
    results = 3

    def ask(self, a: Any) -> tuple[Any, ...]:
        u, s, vh = found = self.client.svd(a, full_matrices=False)
        return u, s, vh, found.status

    def gradient(self, answer: list[Any], grads: tuple[Any, ...]) -> Any:
        u, s, vh, _ = answer
        gu, gs, gvh = grads
        if gu is None and gvh is None:
            return formulas.of_values(u, s, vh, gs, torch)
        gu, gs, gvh = (torch.zeros_like(x) if g is None else g for x, g in zip(answer, grads))
        if u.is_complex():
            gu = _phases_checked(gu, u, formulas.adjoint(gvh), formulas.adjoint(vh))
        return formulas.of_svd(u, s, vh, gu, gs, gvh, torch)


class _Eigh(_Question):
    results = 2

    def ask(self, a: Any) -> tuple[Any, ...]:
        w, v = found = self.client.eigh(a)
        return w, v, found.status

    def gradient(self, answer: list[Any], grads: tuple[Any, ...]) -> Any:
        w, v, _ = answer
        gw, gv = (torch.zeros_like(x) if g is None else g for x, g in zip(answer, grads))
        if v.is_complex() and grads[1] is not None:
            gv = _phases_checked(gv, v, torch.zeros_like(gv), v)
        return formulas.of_eigh(w, v, gw, gv, torch)


@dataclasses.dataclass(frozen=True)
class _Number(_Question):
    """A MIMO number, with its gradient if that is wanted."""

    name: str
    snr_db: Any = None
    wanted: bool = True

    repeats = False

    def ask(self, a: Any) -> tuple[Any, ...]:
        found = self.client.mimo(a, **{self.name: True}, snr_db=self.snr_db, gradient=self.wanted)
        names = [self.name, f"{self.name}_gradient"] if self.wanted else [self.name]
        return tuple(getattr(found, name) for name in names)

    def gradient(self, answer: list[Any], grads: tuple[Any, ...]) -> Any:
        each = grads[0][..., None, None] * answer[1]
        return each if np.ndim(self.snr_db) == 0 else each.sum(-3)


# torch's side.

_NARROWER = {torch.float16: {torch.float32: torch.float16}, torch.bfloat16: {torch.float32: torch.bfloat16},
             torch.complex32: {torch.float32: torch.float16, torch.complex64: torch.complex32}}


def _asked(a: A, name: str, question: _Question, unit: float = 1) -> list[A]:
    """The results in the precision of `a`; a number times `unit`."""
    if not isinstance(a, torch.Tensor):
        raise TypeError(f"{name}: must be a torch.Tensor, but is {type(a).__name__}; pass torch.as_tensor({name}), or use "
                        "svdserve.linalg")
    tensor: Any = a
    narrower = _NARROWER.get(tensor.dtype, {})
    answer = _Asked.apply(tensor, question)
    scaled = answer if unit == 1 else (answer[0] * unit,)
    return [x.to(narrower.get(x.dtype, x.dtype)) for x in scaled]


def _wants_gradient(a: Any) -> bool:
    return bool(getattr(a, "requires_grad", False)) and bool(torch.is_grad_enabled())


class _Asked(torch.autograd.Function):  # type: ignore[misc]
    """The results that a question about a tensor has."""

    @staticmethod
    def forward(a: Any, question: _Question) -> tuple[Any, ...]:
        return question.ask(a.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, _Question], output: tuple[Any, ...]) -> None:
        a, ctx.question = inputs
        ctx.save_for_backward(a, *output)
        ctx.mark_non_differentiable(*output[ctx.question.results:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        a, *answer = ctx.saved_tensors
        if all(g is None for g in grads):
            return None, None
        gradient = ctx.question.gradient(answer, grads[:ctx.question.results])
        if a.dtype in _NARROWER:
            gradient = gradient.to(a.dtype)
        return gradient if ctx.question.repeats else _Once.apply(gradient, a), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], a: Any, question: _Question) -> tuple[tuple[Any, ...], Any]:
        answer = _Asked.apply(a.movedim(in_dims[0], 0), question)
        return answer, (0,) * len(answer)


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """A gradient that depends on `a`, but has no derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Any, a: Any) -> Any:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, Any], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, Any]:
        raise NotImplementedError("h: the gradients of capacity, log_det and effective_rank have no derivatives; for second "
                                  "ones write the function with svdserve.torch.svdvals")


def _phases_checked(gu: Any, u: Any, gv: Any, v: Any) -> Any:
    """`gu`. Raises ValueError in the complex case if the loss depends on phases of the vectors."""
    size = torch.linalg.vector_norm(gu, dim=-2) + torch.linalg.vector_norm(gv, dim=-2)
    return _NotAbove.apply(gu, (formulas.phase_dependence(gu, u, gv, v).abs() - 0.01 * size).detach())


class _NotAbove(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(x: Any, excess: Any) -> Any:
        if (excess > 1e-30).any():
            raise ValueError("the loss depends on the phases of complex vectors, which no decomposition determines. Use "
                             "quantities without them, such as products U @ f(S) @ Vh, projectors or absolute values")
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, Any], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, None]:
        return g, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, int], x: Any, excess: Any) -> tuple[Any, int]:
        return _NotAbove.apply(x.movedim(in_dims[0], 0), excess.movedim(in_dims[1], 0)), 0
