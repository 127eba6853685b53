"""Gradients of decompositions, in the operations that torch and jax.numpy share.

A gradient G of L has the shape of its argument A: L(A + D) = L(A) + Re sum(conj(G) D) + o(|D|), torch's convention. JAX has
its conjugate. Names: `gx` is the gradient with respect to x. `xp` is torch or jax.numpy.

A thin SVD A = U S V^H, with M = U^H gU, N = V^H gV, a = M - M^H and b = N - N^H, has

    G = U (diag(gs) + X) V^H + (I - U U^H) gU S^-1 V^H + U S^-1 gV^H (I - V V^H)
    X_ij = ((a + b)_ij / (s_j - s_i) + (a - b)_ij / (s_j + s_i)) / 2

Eigenvectors of a Hermitian matrix A = V diag(w) V^H have

    G = V (diag(gw) + Y) V^H,   Y_ij = (N - N^H)_ij / (w_j - w_i) / 2

Each quotient is zero where its divisor is not above max(m, n) eps times the largest |value|: there rounding decides which
vectors come out. Source: J. Townsend, "Differentiating the singular value decomposition" (2016). Its quotient
(s_j a + s_i b)_ij / (s_j^2 - s_i^2) is split here, so that equal values do no harm to functions of U V^H.
"""

from __future__ import annotations

from typing import Any


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def of_values(u: Any, s: Any, vh: Any, gs: Any, xp: Any) -> Any:
    """The gradient of singular values s. A value that is zero adds nothing."""
    return (u * xp.where(s == 0, xp.zeros_like(s), gs)[..., None, :]) @ vh


def of_svd(u: Any, s: Any, vh: Any, gu: Any, gs: Any, gvh: Any, xp: Any) -> Any:
    """The gradient of a thin SVD. None of the gradients is missing."""
    least = _least(s, max(u.shape[-2], vh.shape[-1]), xp)
    gv, uh, v = adjoint(gvh), adjoint(u), adjoint(vh)
    m, n = uh @ gu, vh @ gv
    a, b = m - adjoint(m), n - adjoint(n)
    row, column = s[..., None, :], s[..., None]
    mixed = (_quotient(a + b, row - column, least[..., None], xp) + _quotient(a - b, row + column, least[..., None], xp)) / 2
    g = of_values(u, s, vh, gs, xp) + u @ mixed @ vh
    if u.shape[-2] > s.shape[-1]:
        g = g + _quotient(gu - u @ m, row, least[..., None], xp) @ vh
    if vh.shape[-1] > s.shape[-1]:
        g = g + u @ adjoint(_quotient(gv - v @ n, row, least[..., None], xp))
    return g


def of_eigh(w: Any, v: Any, gw: Any, gv: Any, xp: Any) -> Any:
    """The gradient of eigenvalues and eigenvectors of Hermitian matrices. It is Hermitian, too."""
    n = adjoint(v) @ gv
    difference = w[..., None, :] - w[..., None]
    mixed = _quotient(n - adjoint(n), difference, _least(w, w.shape[-1], xp)[..., None], xp) / 2
    g = (v * gw[..., None, :] + v @ mixed) @ adjoint(v)
    return (g + adjoint(g)) / 2


def phase_dependence(gu: Any, u: Any, gv: Any, v: Any) -> Any:
    """How much L changes with the common phase of each pair of complex vectors, which no decomposition determines."""
    return ((u.conj() * gu).sum(-2) + (v.conj() * gv).sum(-2)).imag


def _least(values: Any, size: int, xp: Any) -> Any:
    """The divisors up to which rounding decides, shape (..., 1)."""
    largest = xp.amax(abs(values), -1) if values.shape[-1] else values.sum(-1)
    return largest[..., None] * (size * xp.finfo(values.dtype).eps)


def _quotient(numerator: Any, divisor: Any, least: Any, xp: Any) -> Any:
    """Zero where |divisor| <= least. A NaN stays one."""
    counts = ~(abs(divisor) <= least)
    return xp.where(counts, numerator, xp.zeros_like(numerator)) / xp.where(counts, divisor, xp.ones_like(divisor))
