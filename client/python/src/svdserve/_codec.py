"""NumPy arrays to requests, cut in pieces, and replies to arrays. No gRPC here.

Bytes are the cost of a call with many small matrices, so they are copied as rarely as Python allows. A request is joined
from a short prefix and the array's own memory, by one copy. A protobuf message would copy the operand twice more, so the
operand never passes through one. The prefix is the bytes that protobuf would write before those of the field `data`. The
arrays of a reply are copied once, to memory of their own, and views of the received bytes where the caller wants them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from . import _proto
from ._narrow import Narrow, narrow_type, widened
from ._query import Plane, Query
from .errors import invalid_argument, invalid_reply
from .values import Certificate, LargeSummary, Limits, named_statuses

# NumPy's name of an element type -> name on the wire, and the type of its singular values.
_WIRE_TYPES = {"float32": ("F32", np.float32), "float64": ("F64", np.float64),
               "complex64": ("C64", np.float32), "complex128": ("C128", np.float64)}

# Field numbers and wire types of the contract that this file writes and reads itself.
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
# Requests and responses of Eigendecompose have the numbers of those of Decompose. So the planes of both have the names
# that they have in a DecomposeResponse, if they are there.
_FIELD_MIMO, _FIELD_CERTIFICATE, _FIELD_GROUPS = 16, 15, 17  # of DecomposeResponse

_REQUEST_OVERHEAD = 256  # bytes of a request that are not matrices, generously
_RESPONSE_OVERHEAD = 4096  # the same of a response, as the server reckons
_GROUP_OVERHEAD = 512  # of each group in either
_STATUS_BYTES = 5  # a matrix may cost its response for its status, as the server reckons

_PIECE_BYTES, _LARGEST_PIECE_BYTES, _PIECE_MATRICES = 4 << 20, 32 << 20, 16  # by default
_INFLIGHT_SHARE = 8  # pieces of a batch under way, and their results, should be no more than a server has room for


def length_delimited(field: int) -> bytes:
    """The tag of a field of the contract that has a length; the length and the bytes follow."""
    return varint(field << 3 | _LENGTH_DELIMITED)


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_TAG_REQUEST_MATRICES = length_delimited(1)  # DecomposeRequest.matrices
_TAG_REQUEST_GROUPS = length_delimited(3)  # DecomposeRequest.groups
_TAG_BATCH_DATA = length_delimited(6)  # MatrixBatch.data
_TAG_BATCH_STARTING_VECTORS = length_delimited(7)  # MatrixBatch.starting_vectors


@dataclasses.dataclass(frozen=True)
class Request:
    """One message to send, or a part of one: `serialize` joins it when gRPC asks for its bytes."""

    parts: tuple[bytes | np.ndarray, ...]  # arrays are C-contiguous: their memory is what is sent

    @property
    def size(self) -> int:
        """Bytes of the serialized message."""
        return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in self.parts)

    def serialize(self) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part.reshape(-1).view(np.uint8).data
                        for part in self.parts)


_LONGEST_HEAD = 5  # bytes of a tag, and of a length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise _proto.DecodeError("truncated number in a reply")
        byte = view[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at


def fields(view: memoryview) -> Iterator[tuple[int, memoryview | None, memoryview]]:
    """The fields of a serialized message: number, content where it has a length, and the whole of it."""
    at = 0
    while at < len(view):
        start = at
        tag, at = _read_varint(view, at)
        is_too_long = at - start > _LONGEST_HEAD
        tag &= 0xFFFFFFFF  # as libprotobuf reads it
        kind = tag & 7
        content = None
        if kind == _LENGTH_DELIMITED:
            end_of_tag = at
            length, at = _read_varint(view, at)
            is_too_long = is_too_long or at - end_of_tag > _LONGEST_HEAD
            content = view[at:at + length]
            at += length
        elif kind == _VARINT:
            _, at = _read_varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise _proto.DecodeError("a reply has a field of an unknown kind")
        if tag < 8 or at > len(view) or is_too_long:
            raise _proto.DecodeError("a field of a reply is longer than its message")
        yield tag >> 3, content, view[start:at]


def _bytes_fields(message: Any) -> dict[int, str]:
    """The bytes fields of a message class, by number."""
    return {field.number: field.name for field in message.DESCRIPTOR.fields if field.type == field.TYPE_BYTES}


_RESPONSE_PLANES = _bytes_fields(_proto.EigendecomposeResponse) | _bytes_fields(_proto.DecomposeResponse)
_NESTED_PLANES = {_FIELD_MIMO: _bytes_fields(_proto.MimoResult),
                  _FIELD_CERTIFICATE: _bytes_fields(_proto.Certificate)}


@dataclasses.dataclass(frozen=True)
class Response:
    """One message received, or the results of one group in it.

    `planes` are views of its bytes by the name of their field, with those of its MimoResult and its Certificate. `rest`
    are all other fields.
    """

    planes: dict[str, memoryview]
    rest: Any
    groups: list[Response]

    @staticmethod
    def parse(serialized: bytes | memoryview, *, is_group: bool = False) -> Response:
        """Raises DecodeError if the bytes are neither a DecomposeResponse nor an EigendecomposeResponse.

        A group has no groups: should the bytes have some, they are in `rest`, however deep.
        """
        planes: dict[str, memoryview] = {}
        groups, rest = [], []
        certificate: list[memoryview] = []
        has_certificate = False
        for number, content, whole in fields(memoryview(serialized)):
            if content is None:
                rest.append(whole)
            elif number in _RESPONSE_PLANES:
                planes[_RESPONSE_PLANES[number]] = content
            elif number == _FIELD_GROUPS and not is_group:
                groups.append(Response.parse(content, is_group=True))
            elif number in _NESTED_PLANES:
                has_certificate = has_certificate or number == _FIELD_CERTIFICATE
                for inner, of_inner, all_of_it in fields(content):
                    if of_inner is not None and inner in _NESTED_PLANES[number]:
                        planes[_NESTED_PLANES[number][inner]] = of_inner
                    elif number == _FIELD_CERTIFICATE:
                        certificate.append(all_of_it)
            else:
                rest.append(whole)
        message = _proto.DecomposeResponse.FromString(b"".join(rest))
        if has_certificate:
            message.certificate.SetInParent()
            message.certificate.MergeFromString(b"".join(certificate))
        return Response(planes, message, groups)


@dataclasses.dataclass(frozen=True)
class PieceSize:
    """The size that pieces should have, of the larger of request and response."""

    bytes: int
    matrices: int = 0  #: that they should have where these are longer

    @classmethod
    def of_servers(cls, servers: int) -> PieceSize:
        """The default where a batch is shared among `servers`."""
        return cls(_PIECE_BYTES, max(_PIECE_MATRICES // servers, 1))

    def wished_bytes(self, matrix_bytes: int, limits: Limits) -> int:
        """The size for matrices of `matrix_bytes` each, and a server of these limits."""
        largest = min(_LARGEST_PIECE_BYTES, limits.max_inflight_bytes // _INFLIGHT_SHARE)
        return max(self.bytes, min(self.matrices * matrix_bytes, largest))


@dataclasses.dataclass(frozen=True)
class Piece:
    """Matrices start .. stop - 1 of an operand: those of one request."""

    start: int
    stop: int


class Operand:
    """A stack of matrices as NumPy's linear algebra takes it, made ready to be sent in pieces.

    Attributes:
        batch_shape: the leading dimensions of the array.
        count, rows, cols: number of matrices and their shape.
        value_type, element_type: dtypes of the singular values, and of the matrices as they are computed.
        column_major: the matrices are sent so, and matrices in the reply are.
        data_type, memory_order: both as numbers of the contract; that of a large matrix is large_type.
    """

    def __init__(self, a: Any, start: Any = None) -> None:
        """`start`: starting vectors, of a shape that can be broadcast to that of `a`; None: there are none.

        Raises ValueError for another shape, and TypeError for a type that cannot be sent.
        """
        array = np.asarray(a)
        if array.ndim < 2:
            raise np.linalg.LinAlgError(f"{array.ndim}-dimensional array given. "
                                        "Array must be at least two-dimensional")
        self._narrow, self.element_type, self._sent_type, self.value_type, self.large_type, self.data_type = \
            _types(array.dtype)
        self.batch_shape = array.shape[:-2]
        self.rows, self.cols = array.shape[-2:]
        self.count = math.prod(self.batch_shape)
        # Column-major matrices, one after the other, are the transposed stack in row-major order: sent as they are.
        transposed = array.swapaxes(-1, -2)
        self.column_major = not array.flags.c_contiguous and transposed.flags.c_contiguous
        self.memory_order = _proto.MEMORY_ORDERS["COLUMN_MAJOR" if self.column_major else "ROW_MAJOR"]
        stack = transposed if self.column_major else array
        # A view wherever NumPy can make one; what is not contiguous or not of a wire type is converted piece by piece.
        self._stack = stack.reshape((self.count, *stack.shape[-2:])) if self.count else stack
        self._start = None if start is None else self._starting_vectors(start, array.shape)

    def _starting_vectors(self, start: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Those of each matrix, in its memory order."""
        try:
            vectors = np.asarray(start)
        except ValueError as error:
            raise ValueError(f"start: must be an array of eigenvectors: {error}") from None
        if narrow := narrow_type(vectors.dtype):
            vectors = widened(vectors, narrow)
        if vectors.dtype.kind not in "biufc":
            raise TypeError(f"start: array type {vectors.dtype.name} is unsupported in svdserve")
        if vectors.ndim < 2:
            raise ValueError(f"start: must have at least two dimensions, as a has, but its shape is {vectors.shape}")
        try:
            vectors = np.broadcast_to(vectors, shape)
        except ValueError:
            raise ValueError(f"start: its shape {vectors.shape} cannot be broadcast to that of a, {shape}") from None
        vectors = vectors.swapaxes(-1, -2) if self.column_major else vectors
        return vectors.reshape((self.count, *vectors.shape[-2:])) if self.count else vectors

    @property
    def _starting_type(self) -> np.dtype[Any]:
        return np.result_type(self.element_type, np.complex64).newbyteorder("<")

    @property
    def values_per_matrix(self) -> int:
        """k = min(rows, cols)"""
        return int(min(self.rows, self.cols))

    @property
    def empty(self) -> bool:
        """There is nothing to compute."""
        return self.count == 0 or self.values_per_matrix == 0

    def overlaps(self, array: np.ndarray) -> bool:
        """Whether writing to `array` might change what is still to be sent."""
        return overlap(self._stack, array)

    def matrix(self, index: int) -> np.ndarray:
        """One of the matrices as it is sent, in row-major order: a column-major one is its transpose."""
        return np.asarray(self._stack[index])

    def large_parts(self, index: int) -> list[tuple[np.ndarray, np.dtype[Any]]]:
        """The parts of a large matrix in the order of the wire, with their types: itself, then its starting vectors."""
        sent = self.matrix(index)
        matrix = widened(sent, self._narrow) if self._narrow else sent, self.element_type
        return [matrix] if self._start is None else [matrix, (np.asarray(self._start[index]), self._starting_type)]

    @property
    def matrix_bytes(self) -> int:
        """Bytes of a matrix in a request, with its starting vectors."""
        return self._bytes_with_start(self._sent_type)

    @property
    def large_bytes(self) -> int:
        """The same of a large matrix."""
        return self._bytes_with_start(self.element_type)

    def _bytes_with_start(self, element: np.dtype[Any]) -> int:
        sent = element.itemsize + (0 if self._start is None else self._starting_type.itemsize)
        return int(self.rows * self.cols * sent)

    def planes(self, query: Query) -> tuple[Plane, ...]:
        """The arrays of a reply."""
        return _planes(query, self.rows, self.cols, self.element_type, self.value_type)

    def sizes(self, query: Query) -> tuple[int, int]:
        """Bytes of a matrix in a request, with its starting vectors, and in a response at worst, rounded up."""
        return self.matrix_bytes, _response_bytes(query, self.rows, self.cols, self.element_type, self.value_type)

    def fits_a_message(self, limits: Limits, query: Query) -> bool:
        """Whether one matrix, and its results, fit a message."""
        matrix_bytes, response_bytes = self.sizes(query)
        return max(matrix_bytes + _REQUEST_OVERHEAD, response_bytes + _RESPONSE_OVERHEAD) <= limits.max_message_bytes

    def pieces(self, limits: Limits, size: PieceSize, query: Query = Query()) -> list[Piece]:
        """Cuts the operand into requests of about `size`, of the larger of request and response.

        They keep to the limits and to whole groups of the query.

        Raises InvalidArgument if one group alone is too large for them.
        """
        matrix_bytes, response_bytes = self.sizes(query)
        group = query.group_size
        most = min((limits.max_message_bytes - _REQUEST_OVERHEAD) // matrix_bytes,
                   (limits.max_message_bytes - _RESPONSE_OVERHEAD) // response_bytes,
                   limits.max_matrices) // group
        if group > limits.max_matrices:
            raise invalid_argument("options.mimo.group_size", f"is {group}, but this server accepts at most "
                                   f"{limits.max_matrices} matrices in one request")
        if most < 1:
            what = f"{group} {self.rows}x{self.cols} matrices" if group > 1 else f"one {self.rows}x{self.cols} matrix"
            raise invalid_argument("matrices.data", f"{what} of {matrix_bytes} bytes, with {response_bytes} bytes of "
                                   f"results, would exceed the server's limit of {limits.max_message_bytes} bytes a message")
        # Pieces of equal size: a short last one would cost a whole call.
        groups = self.count // group
        larger = max(matrix_bytes, response_bytes - _STATUS_BYTES)
        wished = max(1, min(most, size.wished_bytes(larger, limits) // (larger * group)))
        wanted = -(-groups // wished)
        bounds = [groups * i // wanted * group for i in range(wanted + 1)]
        return [Piece(start, stop) for start, stop in zip(bounds, bounds[1:])]

    def header(self, count: int) -> Any:
        """A MatrixBatch of `count` matrices without their bytes."""
        return _proto.MatrixBatch(data_type=self.data_type, memory_order=self.memory_order, rows=self.rows, cols=self.cols,
                                  count=count, exponent=self._narrow.exponent if self._narrow else 0)

    def batch(self, piece: Piece) -> Request:
        """A serialized MatrixBatch in parts: its fields up to `data`, the bytes of that, and so on."""
        data = np.ascontiguousarray(self._stack[piece.start:piece.stop], dtype=self._sent_type)
        header = self.header(piece.stop - piece.start).SerializeToString()
        batch = header + _TAG_BATCH_DATA + varint(data.nbytes), data
        if self._start is None:
            return Request(batch)
        start = np.ascontiguousarray(self._start[piece.start:piece.stop], dtype=self._starting_type)
        return Request((*batch, _TAG_BATCH_STARTING_VECTORS + varint(start.nbytes), start))


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have a byte in common: exactly, unless their strides make that a search too long to wait for;
    then they have."""
    try:
        return bool(np.shares_memory(a, b, max_work=1_000_000))  # type: ignore[arg-type]  # its stub knows two values
    except RuntimeError:  # TooHardError, which NumPy 1 and 2 keep in different places
        return True


# A list may have thousands of stacks in few shapes and types. These functions depend on nothing else, so their results are
# cached: they took a third of the time of such a list (BENCHMARKS.md).


@functools.lru_cache(maxsize=1024)
def _planes(query: Query, rows: int, cols: int, element: np.dtype[Any], value: np.dtype[Any]) -> tuple[Plane, ...]:
    return tuple(query.planes(rows, cols, element, value.newbyteorder("<")))


@functools.lru_cache(maxsize=1024)
def _response_bytes(query: Query, rows: int, cols: int, element: np.dtype[Any], value: np.dtype[Any]) -> int:
    planes = _planes(query, rows, cols, element, value)
    per_group = sum(plane.bytes for plane in planes if plane.per_group)
    per_matrix = sum(plane.bytes for plane in planes if not plane.per_group)
    return per_matrix + -(-per_group // query.group_size) + _STATUS_BYTES


class _Types(NamedTuple):
    """The attributes of an operand that follow from the type of its array."""

    narrow: Narrow | None
    element: np.dtype[Any]
    sent: np.dtype[Any]
    value: np.dtype[Any]
    large_number: int
    number: int


@functools.lru_cache(maxsize=256)
def _types(dtype: np.dtype[Any]) -> _Types:
    narrow = narrow_type(dtype)
    element = narrow.element if narrow else _element_type(dtype)
    name, value = _WIRE_TYPES[element.name]
    return _Types(narrow, element, narrow.sent if narrow else element, np.dtype(value), _proto.DATA_TYPES[name],
                  _proto.DATA_TYPES[narrow.name if narrow else name])


def _element_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which elements of `dtype` are computed: native, little-endian on the wire.

    As numpy.linalg.svd chooses. Numbers of 16 bits, which NumPy rejects, are of narrow_type().
    """
    if dtype.kind in "biu":
        return np.dtype("<f8")
    if dtype.kind in "fc" and dtype.name in _WIRE_TYPES:
        return dtype.newbyteorder("<")
    raise TypeError(f"array type {dtype.name} is unsupported in svdserve; convert it to float32, float64, complex64 or "
                    "complex128")


class Result:
    """The result of a query about an operand, put together from the replies to its pieces.

    Arrays are writable, and each has memory of its own. Without `copy` those of small matrices are read-only: an array
    that comes in one piece is a view of the bytes received, others are joined. Arrays of large matrices are filled as they
    arrive. The arrays of `out` belong to the caller.

    Attributes:
        summaries: the server's report on each large matrix.

    Raises:
        ValueError: an array of `out` does not have the shape and the type of the result, or is read-only. Or it overlaps
            the operand or another array of `out`.
    """

    def __init__(self, operand: Operand, query: Query = Query(), *, copy: bool = True,
                 out: dict[str, np.ndarray] | None = None) -> None:
        self._operand = operand
        self._query = query
        self._copy = copy
        self._planes = {plane.name: plane for plane in operand.planes(query)}
        if query.certificate == "batch":
            self._planes.pop("each_matrix")
        self._arrays: dict[str, np.ndarray] = {}
        self._statuses = np.zeros(operand.count, np.uint8)
        self._certificate = np.zeros(3)
        self._summaries: dict[int, LargeSummary] = {}
        self._reporting = threading.Lock()
        self._out = out or {}
        for name, array in self._out.items():
            self._check_out(name, array)
        for (one, x), (other, y) in itertools.combinations(self._out.items(), 2):
            if overlap(x, y):
                raise ValueError(f"out: the arrays for {query.title(one)} and {query.title(other)} overlap")

    def _check_out(self, name: str, array: np.ndarray) -> None:
        plane, title = self._planes.get(name), self._query.title(name)
        if plane is None:  # matrices of order 0 have none
            return
        shape, dtype = (*self._operand.batch_shape, *plane.shape), plane.dtype.newbyteorder("=")
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"out: the array for {title} is {found}, but must be {dtype} {shape}")
        if not array.flags.writeable:
            raise ValueError(f"out: the array for {title} is read-only; give a writable one")
        if self._operand.overlaps(array):
            raise ValueError(f"out: the array for {title} overlaps the matrices")

    def _units(self, plane: Plane, matrices: int) -> int:
        return matrices // self._query.group_size if plane.per_group else matrices

    def _wire_shape(self, plane: Plane) -> tuple[int, ...]:
        """The shape of one unit; a column-major matrix is its transpose in row-major order."""
        if not (plane.is_matrix and self._operand.column_major):
            return plane.shape
        return (*plane.shape[:-2], plane.shape[-1], plane.shape[-2])

    def put(self, piece: Piece, response: Response) -> None:
        """Takes the reply to `piece`. Raises Internal if it does not fit the request."""
        count = piece.stop - piece.start
        rest = response.rest
        self._check_counts(count, response)
        for plane in self._planes.values():
            self._put_plane(plane, piece, response.planes.get(plane.name, memoryview(b"")))
        if rest.exception_indices or rest.exception_statuses:
            where, what = _exceptions(rest, count)
            self._statuses[piece.start + where] = what
        if self._query.certificate != "none":
            certificate = rest.certificate
            self._certificate = np.maximum(self._certificate, (  # NaN where either is
                certificate.residual, certificate.left_orthogonality, certificate.right_orthogonality))

    def _check_counts(self, count: int, response: Response) -> None:
        """Raises Internal if the reply does not fit a request of `count` matrices. Does not look at the sizes of planes."""
        rest = response.rest
        k = self._query.values_of(self._operand.rows, self._operand.cols)
        if (rest.count, rest.values_per_matrix) != (count, k):
            raise invalid_reply(f"it holds {rest.count} matrices of {rest.values_per_matrix} values each, "
                                f"{count} of {k} were asked for")
        columns = self._query.columns(self._operand.rows, self._operand.cols)
        if (rest.left_columns, rest.right_columns) != columns:
            raise invalid_reply(f"its vectors have {rest.left_columns} and {rest.right_columns} columns, "
                                f"{columns[0]} and {columns[1]} were asked for")
        for name, received in response.planes.items():
            if received.nbytes and name not in self._planes:
                raise invalid_reply(f"it holds {name}, which was not asked for")
        if response.groups or rest.groups:
            raise invalid_reply("it holds groups, and none were sent")
        if rest.HasField("certificate") != (self._query.certificate != "none"):
            raise invalid_reply("it has no certificate" if self._query.certificate != "none" else
                                "it has a certificate, none was asked for")

    def _put_plane(self, plane: Plane, piece: Piece, received: memoryview) -> None:
        units = self._units(plane, piece.stop - piece.start)
        if len(received) != units * plane.bytes:
            raise invalid_reply(f"it holds {len(received)} bytes of {plane.name}, {units * plane.bytes} were asked for")
        part = np.frombuffer(received, plane.dtype).reshape(units, *self._wire_shape(plane))
        if not self._copy and units == self._units(plane, self._operand.count):
            self._arrays[plane.name] = part
            return
        if plane.name not in self._arrays:
            self._arrays[plane.name] = self._allocate(plane)
        start = self._units(plane, piece.start)
        self._arrays[plane.name][start:start + units] = part

    def memory(self, name: str, index: int) -> np.ndarray:
        """The bytes of a plane of matrix `index`, to be written to."""
        if name not in self._arrays:
            plane = self._planes[name]
            self._arrays[name] = self._in_place(plane) if name in self._out else self._allocate(plane)
        memory: np.ndarray = self._arrays[name][index].reshape(-1).view(np.uint8)
        return memory

    def _in_place(self, plane: Plane) -> np.ndarray:
        """The caller's own memory for a plane, where results can be written to it as they are received."""
        out = np.asarray(self._out[plane.name])
        if plane.is_matrix and self._operand.column_major:
            out = out.swapaxes(-1, -2)
        return out.reshape(-1, *out.shape[len(self._operand.batch_shape):]) if out.flags.c_contiguous \
            else self._allocate(plane)

    @property
    def summaries(self) -> list[LargeSummary]:
        """The reports on large matrices, in the order of the matrices."""
        return [summary for _, summary in sorted(self._summaries.items())]

    def put_large(self, index: int, summary: LargeSummary) -> None:
        """Takes the report on a large matrix. Several threads may call it."""
        with self._reporting:
            self._summaries[index] = summary
            self._statuses[index] = summary.status
            if self._query.certificate != "none":
                of = summary.certificate
                assert of is not None  # Factor has seen to it
                numbers = of.residual, of.left_orthogonality, of.right_orthogonality
                self._certificate = np.maximum(self._certificate, numbers)
                if "each_matrix" in self._planes:
                    self.memory("each_matrix", index).view(self._planes["each_matrix"].dtype)[:] = numbers

    def _allocate(self, plane: Plane) -> np.ndarray:
        units = self._units(plane, self._operand.count)
        try:
            return np.empty((units, *self._wire_shape(plane)), plane.dtype.newbyteorder("="))
        except MemoryError as error:
            if self._query.vectors != "full" or self._query.eigenproblem:
                raise
            raise MemoryError(f"{error}; full_matrices=False asks for the first min(m, n) vectors alone") from None

    def _of_nothing(self, plane: Plane) -> np.ndarray:
        """An operand without elements gives what NumPy gives: full bases are identities, an empty channel has capacity 0."""
        array = self._allocate(plane)
        array[...] = np.inf if plane.name == "condition_number" else 0
        if plane.is_matrix:
            array[...] = np.eye(*array.shape[-2:])
        return array

    def _type_of_values(self) -> np.dtype[Any]:
        return self._query.result_types(self._operand.element_type, self._operand.value_type)[0].newbyteorder("=")

    def array(self, name: str) -> np.ndarray | None:
        """The plane `name`, the leading dimensions as the operand's; None if it was not requested."""
        plane = self._planes.get(name)
        if plane is None:
            return np.empty((*self._operand.batch_shape, 0), self._type_of_values()) if name in _ALWAYS else None
        array = self._arrays.get(name)
        if array is None:
            array = self._of_nothing(plane)
        if not self._copy and not self._summaries:
            array.flags.writeable = False
        if plane.is_matrix and self._operand.column_major:
            array = array.swapaxes(-1, -2)
        leading = self._operand.batch_shape
        if plane.per_group and self._query.group_size > 1:
            leading = (*leading[:-1], leading[-1] // self._query.group_size)
        array = array.reshape((*leading, *plane.shape))
        if (out := self._out.get(name)) is None:
            return array
        if not np.may_share_memory(out, array):
            np.copyto(out, array)
        return out

    def values(self) -> np.ndarray:
        """Shape (..., k), the leading dimensions as the operand's."""
        values = self.array("singular_values")
        assert values is not None
        return values

    def statuses(self) -> np.ndarray:
        """uint8 numbers of MatrixStatus, one for each matrix."""
        return self._statuses.reshape(self._operand.batch_shape)

    def certificate(self) -> Certificate | None:
        """None if it was not requested."""
        if self._query.certificate == "none":
            return None
        residual, left, right = self._certificate.tolist()
        return Certificate(residual, left, right, self.array("each_matrix"))


def _exceptions(rest: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of `count` matrices are not OK, and their statuses. Raises Internal where that cannot be."""
    where, what = np.asarray(rest.exception_indices, np.int64), np.asarray(rest.exception_statuses, np.int64)
    if len(where) != len(what):
        raise invalid_reply(f"its lists of exceptions have {len(where)} indices and {len(what)} statuses")
    if where[0] < 0 or where[-1] >= count or (np.diff(where) <= 0).any():
        raise invalid_reply(f"its exceptions are not ascending indices of {count} matrices")
    if (what == 0).any():
        raise invalid_reply("it has an exception without a status")
    return where, named_statuses(what)


_ALWAYS = ("singular_values",)  # of matrices without any, it is empty


@dataclasses.dataclass(frozen=True)
class Message:
    """The contents of one request: pieces of results to come."""

    query: Query
    pieces: tuple[tuple[Operand, Piece, Result], ...]

    def request(self, options: bytes) -> Request:
        """`options`: the query, encoded."""
        tag = _TAG_REQUEST_MATRICES if len(self.pieces) == 1 else _TAG_REQUEST_GROUPS
        parts: list[bytes | np.ndarray] = [options]
        for operand, piece, _ in self.pieces:
            batch = operand.batch(piece)
            parts += [tag + varint(batch.size), *batch.parts]
        return Request(tuple(parts))

    def deliver(self, response: Response) -> None:
        """Raises Internal if the response does not fit the request."""
        answers = [response] if len(self.pieces) == 1 else response.groups
        if len(answers) != len(self.pieces):
            raise invalid_reply(f"it holds {len(answers)} groups, {len(self.pieces)} were sent")
        for (_, piece, result), answer in zip(self.pieces, answers):
            result.put(piece, answer)


def messages(results: list[tuple[Operand, Result]], query: Query, limits: Limits, size: PieceSize) -> list[Message]:
    """The requests that operands are sent in: those that are cut in pieces, one each; small neighbours in one as groups.

    Raises InvalidArgument if a matrix alone is too large for the limits.
    """
    cut: list[Message] = []
    together: list[tuple[Operand, Piece, Result]] = []
    sent = received = matrices = 0

    def close() -> None:
        nonlocal together, sent, received, matrices
        if together:
            cut.append(Message(query, tuple(together)))
        together, sent, received, matrices = [], 0, 0, 0

    room = limits.max_message_bytes - _RESPONSE_OVERHEAD
    for operand, result in results:
        if operand.empty:
            continue
        to_send, to_receive = operand.sizes(query)
        for piece in operand.pieces(limits, size, query):
            count = piece.stop - piece.start
            mine = count * to_send + _GROUP_OVERHEAD, count * to_receive + _GROUP_OVERHEAD
            larger = max(sent + mine[0], received + mine[1])
            if together and (larger > min(room, size.wished_bytes(larger // (matrices + count), limits)) or
                             matrices + count > limits.max_matrices or len(together) >= max(limits.max_groups, 1)):
                close()
            together.append((operand, piece, result))
            sent, received, matrices = sent + mine[0], received + mine[1], matrices + count
    close()
    return cut
