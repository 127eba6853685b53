"""NumPy arrays to requests and back. No gRPC here: what is sent, in which pieces, and where an answer belongs.

Bytes are the cost of a call with many small matrices, so they are copied as rarely as Python allows. A request is joined
from a short prefix and the array's own memory, one copy; the operand never passes through a protobuf message, which would
copy it twice more. The prefix is what protobuf would write before the bytes of the field `data`. An answer's values are
a view of the received bytes until they are written to their place in the result.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np

from . import _proto
from .errors import Error, invalid_argument
from .values import Limits

# NumPy's name of an element type -> name on the wire, and the type of its singular values.
_WIRE_TYPES = {"float32": ("F32", np.float32), "float64": ("F64", np.float64),
               "complex64": ("C64", np.float32), "complex128": ("C128", np.float64)}

# Field numbers and wire types of the contract that this file writes and reads itself.
_LENGTH_DELIMITED = 2
_TAG_REQUEST_MATRICES = bytes([1 << 3 | _LENGTH_DELIMITED])  # DecomposeRequest.matrices
_TAG_BATCH_DATA = bytes([6 << 3 | _LENGTH_DELIMITED])  # MatrixBatch.data
_TAG_RESPONSE_VALUES = 1 << 3 | _LENGTH_DELIMITED  # DecomposeResponse.singular_values

_REQUEST_OVERHEAD = 256  # bytes of a request that are not matrices, generously
_RESPONSE_OVERHEAD = 4096  # the same of a response, as the server reckons
_STATUS_BYTES = 5  # a matrix may cost its response for its status, as the server reckons


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_options(method: str, tolerance: float | None, max_sweeps: int | None) -> bytes:
    """The serialized field DecomposeRequest.options."""
    names = {name.lower(): number for name, number in _proto.METHODS.items() if number}
    if not isinstance(method, str) or method.lower() not in names:
        raise invalid_argument("options.method", f"{method!r} is none of {', '.join(map(repr, names))}")
    options = _proto.DecomposeOptions(method=names[method.lower()])
    if tolerance is not None:
        try:
            options.tolerance = float(tolerance)
        except (TypeError, ValueError):
            raise invalid_argument("options.tolerance", f"{tolerance!r} is no number") from None
    if max_sweeps is not None:
        sweeps = operator.index(max_sweeps)
        if not -2**31 <= sweeps < 2**31:
            raise invalid_argument("options.max_sweeps", f"{sweeps} does not fit 32 bits")
        options.max_sweeps = sweeps
    return bytes(_proto.DecomposeRequest(options=options).SerializeToString())


@dataclasses.dataclass(frozen=True)
class Request:
    """One message to send: `serialize` joins it when gRPC asks for its bytes."""

    prefix: bytes
    data: np.ndarray  # C-contiguous, its memory is what follows the prefix

    def serialize(self) -> bytes:
        return b"".join((self.prefix, self.data.reshape(-1).view(np.uint8).data))


@dataclasses.dataclass(frozen=True)
class Response:
    """One message received. `values` is a view of its bytes, `rest` all its other fields."""

    values: memoryview
    rest: Any

    @staticmethod
    def parse(serialized: bytes) -> Response:
        """Raises DecodeError for what is no DecomposeResponse."""
        view = memoryview(serialized)
        if len(view) == 0 or view[0] != _TAG_RESPONSE_VALUES:  # no values, or another field first: legal, and rare
            rest = _proto.DecomposeResponse.FromString(serialized)
            return Response(memoryview(rest.singular_values), rest)
        length, shift, at = 0, 0, 1
        while True:
            if at >= len(view) or shift > 63:
                raise _proto.DecodeError("truncated length of singular_values")
            length |= (view[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if view[at - 1] < 0x80:
                break
        if length > len(view) - at:
            raise _proto.DecodeError("singular_values is longer than its message")
        rest = _proto.DecomposeResponse.FromString(bytes(view[at + length:]))
        return Response(view[at:at + length], rest)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Matrices start .. stop - 1 of an operand: what one request carries."""

    start: int
    stop: int


class Operand:
    """A stack of matrices as NumPy's linear algebra takes it, made ready to be sent in pieces.

    Attributes:
        batch_shape: the leading dimensions of the array.
        count, rows, cols: number of matrices and their shape.
        value_type: dtype of the singular values.
    """

    def __init__(self, a: Any) -> None:
        array = np.asarray(a)
        if array.ndim < 2:
            raise np.linalg.LinAlgError(f"{array.ndim}-dimensional array given. "
                                        "Array must be at least two-dimensional")
        self._dtype = _element_type(array.dtype)
        name, value_type = _WIRE_TYPES[self._dtype.name]
        self._data_type = _proto.DATA_TYPES[name]
        self.value_type = np.dtype(value_type)
        self.batch_shape = array.shape[:-2]
        self.rows, self.cols = array.shape[-2:]
        self.count = int(np.prod(self.batch_shape, dtype=np.int64))
        # Column-major matrices, one after the other, are the transposed stack in row-major order: sent as they are.
        transposed = array.swapaxes(-1, -2)
        self._column_major = not array.flags.c_contiguous and transposed.flags.c_contiguous
        stack = transposed if self._column_major else array
        # A view wherever NumPy can make one; what is not contiguous or not of a wire type is converted piece by piece.
        self._stack = stack.reshape((self.count, *stack.shape[-2:])) if self.count else stack

    @property
    def values_per_matrix(self) -> int:
        """k = min(rows, cols)"""
        return int(min(self.rows, self.cols))

    @property
    def empty(self) -> bool:
        """There is nothing to compute."""
        return self.count == 0 or self.values_per_matrix == 0

    def pieces(self, limits: Limits, piece_bytes: int) -> list[Piece]:
        """Cuts the operand into requests of about `piece_bytes` whose request and response keep to the limits.

        Raises InvalidArgument if one matrix alone is too large for them.
        """
        matrix_bytes = self.rows * self.cols * self._dtype.itemsize
        response_bytes = self.values_per_matrix * self.value_type.itemsize + _STATUS_BYTES
        most = min((limits.max_message_bytes - _REQUEST_OVERHEAD) // matrix_bytes,
                   (limits.max_message_bytes - _RESPONSE_OVERHEAD) // response_bytes,
                   limits.max_matrices)
        if most < 1:
            raise invalid_argument("matrices.data", f"one {self.rows}x{self.cols} matrix of {matrix_bytes} bytes passes "
                                   f"the server's limit of {limits.max_message_bytes} bytes a message")
        # Pieces of equal size: a short last one would cost a whole call.
        wanted = -(-self.count // max(1, min(most, piece_bytes // matrix_bytes)))
        bounds = [self.count * i // wanted for i in range(wanted + 1)]
        return [Piece(start, stop) for start, stop in zip(bounds, bounds[1:])]

    def request(self, piece: Piece, options: bytes) -> Request:
        """The message for `piece`; `options` as encode_options() made it."""
        data = np.ascontiguousarray(self._stack[piece.start:piece.stop], dtype=self._dtype)
        order = _proto.MEMORY_ORDERS["COLUMN_MAJOR" if self._column_major else "ROW_MAJOR"]
        header = _proto.MatrixBatch(data_type=self._data_type, memory_order=order, rows=self.rows, cols=self.cols,
                                    count=piece.stop - piece.start).SerializeToString()
        header += _TAG_BATCH_DATA + _varint(data.nbytes)
        return Request(options + _TAG_REQUEST_MATRICES + _varint(len(header) + data.nbytes) + header, data)


def _element_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which elements of `dtype` are computed: native, little-endian on the wire.

    As numpy.linalg.svd chooses, with one addition: float16, which NumPy refuses, is widened to float32, exactly.
    """
    if dtype.kind in "biu":
        return np.dtype("<f8")
    if dtype.kind == "f" and dtype.itemsize == 2:  # in either byte order
        return np.dtype("<f4")
    if dtype.kind in "fc" and dtype.name in _WIRE_TYPES:
        return dtype.newbyteorder("<")
    raise TypeError(f"array type {dtype.name} is unsupported in svdvals")


class Result:
    """Values and statuses of an operand, filled in piece by piece."""

    def __init__(self, operand: Operand) -> None:
        self._operand = operand
        self._values = np.empty((operand.count, operand.values_per_matrix), operand.value_type)
        self._statuses = np.zeros(operand.count, np.uint8)

    def put(self, piece: Piece, response: Response) -> None:
        """Writes the answer to `piece`. Raises Error if it does not fit what was asked."""
        count, k = piece.stop - piece.start, self._operand.values_per_matrix
        wire_type = self._operand.value_type.newbyteorder("<")
        rest = response.rest
        if (rest.count, rest.values_per_matrix, len(response.values)) != (count, k, count * k * wire_type.itemsize):
            raise Error(f"the server answered {count} matrices of {k} values each by {rest.count} of "
                        f"{rest.values_per_matrix}, in {len(response.values)} bytes")
        self._values[piece.start:piece.stop] = np.frombuffer(response.values, wire_type).reshape(count, k)
        if rest.exception_indices:
            where = np.asarray(rest.exception_indices, np.int64)
            what = np.asarray(rest.exception_statuses, np.uint8)
            if len(where) != len(what) or where.min() < 0 or where.max() >= count:
                raise Error("the server's list of exceptions is not one of this request")
            self._statuses[piece.start + where] = what

    def values(self) -> np.ndarray:
        """Shape (..., k), the leading dimensions as the operand's."""
        return self._values.reshape((*self._operand.batch_shape, self._operand.values_per_matrix))

    def statuses(self) -> np.ndarray:
        """uint8 numbers of MatrixStatus, one for each matrix."""
        return self._statuses.reshape(self._operand.batch_shape)

