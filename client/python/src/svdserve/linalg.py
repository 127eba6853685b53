"""The functions of numpy.linalg that are made of singular values or eigenvalues, computed by a server.

    >>> from svdserve import linalg
    >>> linalg.use(address)
    >>> print(linalg.matrix_rank([[1, 2], [2, 4]]), linalg.cond([[2.0, 0.0], [0.0, 0.5]]), linalg.norm([[3, 4], [0, 0]], 2))
    1 4.0 5.0

svd, svdvals, pinv, matrix_rank, cond, norm, eigh, eigvalsh, eig and eigvals have NumPy's signatures, results and errors. A
matrix with an infinity or a NaN is a LinAlgError. Every other name is NumPy's own, such as solve. Arrays of torch, JAX and
others come out as what they were. Errors of the connection are those of Client.

All functions share one client. use() sets it. Otherwise the first call makes `Client()`, which reads SVDSERVE_ADDRESS. It is
closed at the exit of the process.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
from numpy.linalg import LinAlgError
from numpy.linalg import cond as _numpys_cond
from numpy.linalg import norm as _numpys_norm

from . import _arrays
from ._arrays import A, Foreign
from ._client import Client, Eigenvalues, Values
from ._narrow import narrow_type
from .errors import InvalidArgument
from .values import EighResult, EigResult, MatrixStatus, SVDResult

__all__ = ["LinAlgError", "cond", "eig", "eigh", "eigvals", "eigvalsh", "matrix_rank", "norm", "pinv", "svd", "svdvals",
           "use"]

_lock = threading.Lock()
_client: Client | None = None
_NO_VALUE: Any = object()  # of rtol of pinv, whose None has a meaning
_F = TypeVar("_F", bound=Callable[..., Any])


def use(client: Client | str | None) -> None:
    """Sets the client of this module's functions, for all threads.

    Args:
        client: a Client, which stays its owner's to close; an address; or None for the one that the next call makes.
    """
    global _client
    made = Client(client) if isinstance(client, str) else client
    with _lock:
        _client = made


def _server() -> Client:
    global _client
    with _lock:
        if _client is None:
            _client = Client()
        return _client


def __getattr__(name: str) -> Any:
    if name in np.linalg.__all__:
        return getattr(np.linalg, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *np.linalg.__all__})


def _of_any_kind(function: _F) -> _F:
    """Has a function of a NumPy array take one of any library, and return its kind."""
    name = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if arguments:
            array, back = _arrays.host(arguments[0], name)
            return _arrays.returned(function(array, *arguments[1:], **options), back)
        array, back = _arrays.host(options.pop(name), name) if name in options else function()
        return _arrays.returned(function(array, **options), back)

    return call  # type: ignore[return-value]


@contextmanager
def _numpys_errors(message: str) -> Iterator[None]:
    """Raises LinAlgError for a large matrix that is rejected for an infinity or a NaN."""
    try:
        yield
    except InvalidArgument as error:
        if error.reason == "NON_FINITE":
            raise LinAlgError(message) from error
        raise


def _accepted(a: Any) -> np.ndarray:
    """`a` as an array. Raises TypeError for numbers of 16 bits, as NumPy does."""
    array = np.asarray(a)
    if found := narrow_type(array.dtype):
        raise TypeError(f"array type {found.title} is unsupported in linalg; convert it to {found.element.name}, or pass it "
                        "to a svdserve.Client")
    return array


def _checked(status: Any, message: str) -> None:
    """Raises LinAlgError if a matrix has no results that NumPy would give."""
    if np.isin(status, (MatrixStatus.NON_FINITE, MatrixStatus.NOT_CONVERGED, MatrixStatus.UNKNOWN)).any():
        raise LinAlgError(message)


_SVD_FAILED = "SVD did not converge"
_EIGENVALUES_FAILED = "Eigenvalues did not converge"
_NOT_FINITE = "Array must not contain infs or NaNs"


@overload
def svd(a: A, full_matrices: bool = ..., compute_uv: Literal[True] = ...,
        hermitian: bool = ...) -> SVDResult[A, A, A]: ...


@overload
def svd(a: A, full_matrices: bool = ..., *, compute_uv: Literal[False], hermitian: bool = ...) -> A: ...


@overload
def svd(a: A, full_matrices: bool, compute_uv: Literal[False], hermitian: bool = ...) -> A: ...


@overload
def svd(a: npt.ArrayLike, full_matrices: bool = ..., compute_uv: Literal[True] = ...,
        hermitian: bool = ...) -> SVDResult: ...


@overload
def svd(a: npt.ArrayLike, full_matrices: bool = ..., *, compute_uv: Literal[False],
        hermitian: bool = ...) -> Values: ...


@overload
def svd(a: npt.ArrayLike, full_matrices: bool, compute_uv: Literal[False], hermitian: bool = ...) -> Values: ...


@_of_any_kind
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular value decomposition, as numpy.linalg.svd. Raises LinAlgError where NumPy does.

    Without `hermitian` the result has `status`, `certificate` and `summaries`, as that of Client.svd.
    """
    a = _accepted(a)
    if hermitian:
        return _svd_of_hermitian(a, compute_uv)
    with _numpys_errors(_SVD_FAILED):
        if not compute_uv:
            values, status = _server().svdvals(a, return_status=True)
            _checked(status, _SVD_FAILED)
            return values
        result = _server().svd(a, full_matrices)
    _checked(result.status, _SVD_FAILED)
    return result


def _svd_of_hermitian(a: np.ndarray, compute_uv: bool) -> Any:
    if not compute_uv:
        return -np.sort(-np.abs(eigvalsh(a)))
    w, v = eigh(a)
    order = np.argsort(-np.abs(w), axis=-1, kind="stable")
    w, v = np.take_along_axis(w, order, -1), np.take_along_axis(v, order[..., None, :], -1)
    signs = np.where(w < 0, -1, 1).astype(w.dtype)
    vh = (v * signs[..., None, :]).conj().swapaxes(-1, -2)
    return SVDResult(v, np.abs(w), vh).reported(np.zeros(a.shape[:-2], np.uint8), None, ())


@overload
def svdvals(x: A, /) -> A: ...


@overload
def svdvals(x: npt.ArrayLike, /) -> Values: ...


@_of_any_kind
def svdvals(x: Any, /) -> Any:
    """Singular values, as numpy.linalg.svdvals."""
    return svd(x, compute_uv=False)


@overload
def pinv(a: A, rcond: Any = ..., hermitian: bool = ..., *, rtol: Any = ...) -> A: ...


@overload
def pinv(a: npt.ArrayLike, rcond: Any = ..., hermitian: bool = ..., *,
         rtol: Any = ...) -> npt.NDArray[np.inexact[Any]]: ...


@_of_any_kind
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NO_VALUE) -> Any:
    """The pseudo-inverse, as numpy.linalg.pinv: singular values up to rcond times the largest count as zero."""
    a = np.asarray(a)
    if rcond is not None and rtol is not _NO_VALUE:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if a.ndim >= 2 and a.size == 0:
        return np.empty((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    if rcond is None:
        rcond = 1e-15 if rtol is _NO_VALUE else max(a.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
    large = s > np.asarray(rcond)[..., None] * np.amax(s, axis=-1, keepdims=True)
    inverse = np.divide(1, s, where=large, out=np.zeros_like(s))
    return (vh.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)


@_of_any_kind
def matrix_rank(A: npt.ArrayLike | Foreign, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The number of singular values above a tolerance, as numpy.linalg.matrix_rank."""
    a = np.asarray(A)
    if a.ndim < 2:
        return int(not np.all(a == 0))
    s = svd(a, compute_uv=False, hermitian=hermitian)
    if tol is None:
        rtol = max(a.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else np.asarray(rtol)[..., None]
        tol = np.max(s, axis=-1, keepdims=True, initial=0) * rtol
    elif rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    else:
        tol = np.asarray(tol)[..., None]
    return np.count_nonzero(s > tol, axis=-1)


@_of_any_kind
def cond(x: npt.ArrayLike | Foreign, p: Any = None) -> Any:
    """The condition number, as numpy.linalg.cond: from singular values for p of None, 2 and -2; else NumPy computes it."""
    a = np.asarray(x)
    if p is not None and p not in (2, -2) or a.ndim < 2 or a.size == 0:
        return _numpys_cond(x, p)  # type: ignore[arg-type]
    with _numpys_errors(_SVD_FAILED):
        s = _server().svdvals(_accepted(a))
    with np.errstate(all="ignore"):
        condition = np.asarray(s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1])
    # 0 / 0 is the zero matrix, which is singular; only a NaN in the matrix gives a NaN.
    condition[np.isnan(condition) & ~np.isnan(a).any(axis=(-2, -1))] = np.inf
    return condition[()]


@_of_any_kind
def norm(x: npt.ArrayLike | Foreign, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norms, as numpy.linalg.norm: of matrices those of order 2, -2 and "nuc" from singular values; else NumPy's."""
    a = np.asarray(x)
    if a.dtype.names is not None:  # as_operand(), whose exponent NumPy would drop
        a = _accepted(a)
    axes = tuple(range(a.ndim)) if axis is None else axis
    is_matrix = isinstance(axes, tuple) and len({i % a.ndim for i in axes if -a.ndim <= i < a.ndim}) == len(axes) == 2
    if not is_matrix or ord not in (2, -2, "nuc") or a.size == 0:  # NumPy says what is wrong, if anything is
        return _numpys_norm(x, ord, axis, keepdims)  # type: ignore[arg-type]
    s = svd(np.moveaxis(a, axes, (-2, -1)), compute_uv=False)
    found = np.sum(s, axis=-1) if ord == "nuc" else s[..., 0 if ord == 2 else -1]
    return np.expand_dims(found, axes) if keepdims else found[()]


@overload
def eigh(a: A, UPLO: str = ...) -> EighResult[A, A, A]: ...


@overload
def eigh(a: npt.ArrayLike, UPLO: str = ...) -> EighResult: ...


@_of_any_kind
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices, as numpy.linalg.eigh."""
    with _numpys_errors(_EIGENVALUES_FAILED):
        result = _server().eigh(_accepted(a), UPLO)
    _checked(result.status, _EIGENVALUES_FAILED)
    return result


@overload
def eigvalsh(a: A, UPLO: str = ...) -> A: ...


@overload
def eigvalsh(a: npt.ArrayLike, UPLO: str = ...) -> Values: ...


@_of_any_kind
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of Hermitian matrices, as numpy.linalg.eigvalsh."""
    with _numpys_errors(_EIGENVALUES_FAILED):
        values, status = _server().eigvalsh(_accepted(a), UPLO, return_status=True)
    _checked(status, _EIGENVALUES_FAILED)
    return values


@overload
def eig(a: A) -> EigResult[A, A, A]: ...


@overload
def eig(a: npt.ArrayLike) -> EigResult: ...


@_of_any_kind
def eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors of square matrices, as numpy.linalg.eig."""
    with _numpys_errors(_NOT_FINITE):
        result = _server().eig(_accepted(a))
    _checked(result.status, _NOT_FINITE)
    return result


@overload
def eigvals(a: A) -> A: ...


@overload
def eigvals(a: npt.ArrayLike) -> Eigenvalues: ...


@_of_any_kind
def eigvals(a: Any) -> Any:
    """Eigenvalues of square matrices, as numpy.linalg.eigvals."""
    with _numpys_errors(_NOT_FINITE):
        values, status = _server().eigvals(_accepted(a), return_status=True)
    _checked(status, _NOT_FINITE)
    return values
