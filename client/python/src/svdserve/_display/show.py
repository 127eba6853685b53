"""Summaries of results: as text, and as tables of notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import _arrays

Rows = list[tuple[str, str]]


class Shown:
    """A value whose repr() is a summary of a few lines, and a table in a notebook."""

    def _rows(self) -> Rows:
        raise NotImplementedError

    def _title(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([self._title(), *(f"  {name:{width}}  {text}" for name, text in rows)])

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
                        f"<td style='text-align: left'>{html.escape(text)}</td></tr>" for name, text in self._rows())
        return f"<table><caption>{html.escape(self._title())}</caption>{cells}</table>"


def kind(array: Any) -> str:
    """Shape and type: "(5, 4, 4) complex64"."""
    return f"{tuple(getattr(array, 'shape', ()))} {str(getattr(array, 'dtype', type(array).__name__)).rpartition('.')[2]}"


def arrays(**named: Any) -> Rows:
    return [(name, kind(array)) for name, array in named.items() if array is not None]


def numbers(array: Any) -> np.ndarray | None:
    """The elements as NumPy's; None if they cannot be had."""
    try:
        found = np.asarray(_arrays.host(array, "array")[0])
    except Exception:  # a summary must not fail
        return None
    return found if found.dtype.kind in "iufc" and found.size else None


def spectrum(values: Any, conditioned: bool = True, complete: bool = True) -> Rows:
    """The largest and the smallest value by magnitude, and the largest condition of a matrix if that is their quotient.

    `complete`: no smaller values were left out.
    """
    found = numbers(values)
    if found is None:
        return []
    sizes = np.abs(found).astype(np.float64)
    text = f"largest {_most(np.fmax, sizes)}, smallest {'' if complete else 'computed '}{_most(np.fmin, sizes)}"
    if conditioned and complete and sizes.ndim:
        largest, smallest = sizes.max(axis=-1), sizes.min(axis=-1)
        with np.errstate(all="ignore"):
            conditions = np.where(smallest == 0, np.inf, largest / smallest)
        text += ", condition " + ("up to " if conditions.ndim else "") + _most(np.fmax, conditions)
    return [("spectrum", text)]


def extent(array: Any) -> str:
    """"0.5 .. 7.25, mean 3.1", of finite numbers."""
    found = numbers(array)
    if found is None or found.dtype.kind == "c":
        return ""
    finite = found[np.isfinite(found)]
    return f": {finite.min():.4g} .. {finite.max():.4g}, mean {finite.mean(dtype=np.float64):.4g}" if finite.size else ""


def _most(choose: np.ufunc, array: np.ndarray) -> str:
    return f"{choose.reduce(array, axis=None):.4g}"


def report(result: Any, names: type[Any]) -> Rows:
    """Status, certificate and summaries of a result. `names`: MatrixStatus."""
    return [*_statuses(getattr(result, "status", None), names), *_certificate(getattr(result, "certificate", None)),
            *_summaries(getattr(result, "summaries", ()))]


def _statuses(status: Any, names: type[Any]) -> Rows:
    found = None if status is None else numbers(status)
    if found is None:
        return []
    which, counts = np.unique(found, return_counts=True)
    text = ", ".join(f"{count} {names(number).name}" for number, count in zip(which.tolist(), counts.tolist()))
    return [("status", text)]


def _certificate(certificate: Any) -> Rows:
    if certificate is None:
        return []
    return [("certificate", f"residual {certificate.residual:.2g}, orthogonality {certificate.left_orthogonality:.2g} and "
                            f"{certificate.right_orthogonality:.2g}")]


def _summaries(summaries: Iterable[Any]) -> Rows:
    return [("computed", f"by {one.method} on {one.device}, {one.sweeps} sweeps, {one.compute_seconds:.3g} s")
            for one in list(summaries)[:3]]
