"""Matrices of 16-bit numbers: float16, bfloat16 of ml_dtypes, and structured dtypes for the types that NumPy has not."""

from __future__ import annotations

import dataclasses
import operator
import re
from typing import Any

import numpy as np
import numpy.typing as npt

BF16 = np.dtype([("bfloat16", "<u2")])
C32 = np.dtype([("real", "<f2"), ("imag", "<f2")])

_LEAST_EXPONENT, _LARGEST_EXPONENT = -126, 112
_OF_INTEGERS = re.compile(r"(int16|real)\*2\^(-?\d+)")  # the first field of a dtype of integers


@dataclasses.dataclass(frozen=True)
class Narrow:
    """An element type of 16-bit numbers."""

    name: str  #: on the wire
    sent: np.dtype[Any]
    element: np.dtype[Any]  #: of the same matrices once they are converted, and of results
    exponent: int = 0

    @property
    def title(self) -> str:
        return {"F16": "float16", "BF16": "bfloat16", "C32": "complex32"}.get(self.name, "int16 with an exponent")

    @property
    def is_complex(self) -> bool:
        return self.element.kind == "c"


def narrow_type(dtype: np.dtype[Any]) -> Narrow | None:
    """The element type of `dtype`; None: its numbers do not have 16 bits."""
    if dtype.kind == "f" and dtype.itemsize == 2:
        return Narrow("F16", np.dtype("<f2"), np.dtype("<f4"))
    if dtype == BF16 or dtype.name == "bfloat16":
        return Narrow("BF16", dtype, np.dtype("<f4"))
    if dtype == C32:
        return Narrow("C32", dtype, np.dtype("<c8"))
    found = _OF_INTEGERS.fullmatch(dtype.names[0]) if dtype.names else None
    if found is None or dtype != _integers(int(found[2]), found[1] == "real"):
        return None
    pairs = found[1] == "real"
    return Narrow("CI16" if pairs else "I16", dtype, np.dtype("<c8" if pairs else "<f4"), int(found[2]))


def _integers(exponent: int, pairs: bool) -> np.dtype[Any]:
    return np.dtype([(f"{field}*2^{exponent}", "<i2") for field in (("real", "imag") if pairs else ("int16",))])


def widened(array: np.ndarray, of: Narrow) -> np.ndarray:
    """A copy in numbers of 32 bits, which have all those of 16 exactly."""
    if of.name == "F16":
        return array.astype(of.element)
    if of.name == "BF16":
        return (array.view("<u2").astype("<u4") << 16).view(of.element)
    parts = [array[field].astype("<f4") for field in array.dtype.names or ()]
    if of.name != "C32":
        parts = [np.ldexp(part, of.exponent) for part in parts]
    if not of.is_complex:
        return parts[0]
    out = np.empty(array.shape, of.element)
    out.real, out.imag = parts
    return out


def as_operand(a: npt.ArrayLike, exponent: int = 0, *, pairs: bool = False) -> npt.NDArray[Any]:
    """Integers of 16 bits, or pairs of 16-bit numbers, as matrices of numbers for the verbs of a client.

    >>> import numpy as np, svdserve
    >>> samples = np.array([[[3, 4], [0, 0]], [[0, 0], [1, 0]]], np.int16)
    >>> svdserve.as_operand(samples, -2, pairs=True).shape
    (2, 2)

    The result has a structured dtype, which says what its elements are. It shares the memory of `a` if it can, and its
    slices, stacks and transposes are operands as well. The numbers are sent as they are, and a device converts them exactly.
    Results are those of float32 or complex64.

    Args:
        a: int16 of shape (..., m, n), or int16 or float16 of shape (..., m, n, 2) with `pairs`.
        exponent: an element is its integer times 2**exponent, from -126 to 112; 0 for float16.
        pairs: the last dimension has the real and the imaginary part.

    Raises:
        TypeError: `a` is of another type, or `exponent` is no integer.
        ValueError: another exponent, or the last dimension is not 2.
    """
    array = np.asarray(a)
    is_half = array.dtype.kind == "f" and array.dtype.itemsize == 2
    if not (array.dtype.kind == "i" and array.dtype.itemsize == 2) and not (is_half and pairs):
        hint = "; float16 goes to a client as it is" if is_half else ""
        raise TypeError(f"a: must be int16{' or float16' if pairs else ''}, but is {array.dtype.name}{hint}")
    try:
        exponent = operator.index(exponent)
    except TypeError:
        raise TypeError(f"exponent: must be an integer, but is {exponent!r}") from None
    if not _LEAST_EXPONENT <= exponent <= _LARGEST_EXPONENT:
        raise ValueError(f"exponent: must be from {_LEAST_EXPONENT} to {_LARGEST_EXPONENT}, but is {exponent}")
    if is_half and exponent:
        raise ValueError(f"exponent: is for integers, and must be 0 for float16, but is {exponent}")
    dtype = C32 if is_half else _integers(exponent, pairs)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not pairs:
        return array.view(dtype)
    if array.ndim == 0 or array.shape[-1] != 2:
        raise ValueError(f"a: its last dimension must be 2, the parts of a number, but its shape is {array.shape}")
    return (array if array.strides[-1] == 2 else np.ascontiguousarray(array)).view(dtype)[..., 0]
