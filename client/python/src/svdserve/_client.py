"""The blocking client."""

from __future__ import annotations

import collections
import functools
import threading
from types import TracebackType
from typing import Any, Callable, Literal, overload

import grpc
import numpy as np
import numpy.typing as npt

from . import _codec, _proto
from ._channel import DEFAULT_IN_FLIGHT, DEFAULT_PIECE_BYTES, ChannelSettings, Deadline, Stub, health_name
from .errors import closed_error, from_rpc_error
from .values import Limits, RetryPolicy, ServerInfo, Tls, server_info

Values = npt.NDArray[np.floating[Any]]
Statuses = npt.NDArray[np.uint8]


class Client:
    """A connection to a svdserve server. It may be used by several threads at once.

    Args:
        address: "host:port" or "unix:/path", as gRPC takes it.
        tls: False for plain text, True for TLS with gRPC's default trust, or a Tls with the files to use.
        retry: when to send again what the server refused; RetryPolicy() if None.
        piece_bytes: a batch longer than this is sent in pieces of about this many bytes.
        max_in_flight: how many pieces of one call may be under way at once.

    Raises:
        OSError: a file of `tls` cannot be read.
        TypeError: `address` is no str.
        ValueError: `address` is empty, piece_bytes or max_in_flight is below 1, or `tls` holds half of a certificate and
            its key.

    Nothing is sent before the first call: a server that is not there shows itself then, as Unavailable. Close the client
    when it is no longer needed, or use it in a `with` statement.
    """

    def __init__(self, address: str, *, tls: Tls | bool = False, retry: RetryPolicy | None = None,
                 piece_bytes: int = DEFAULT_PIECE_BYTES, max_in_flight: int = DEFAULT_IN_FLIGHT) -> None:
        self._settings = ChannelSettings(address, tls, retry, piece_bytes, max_in_flight)
        self._channel = self._settings.open(grpc)
        self._stub = Stub(self._channel)
        self._closed = threading.Event()
        self._limits: Limits | None = None

    @overload
    def svdvals(self, a: npt.ArrayLike, *, method: str = ..., tolerance: float | None = ...,
                max_sweeps: int | None = ..., timeout: float | None = ...,
                return_status: Literal[False] = ...) -> Values: ...

    @overload
    def svdvals(self, a: npt.ArrayLike, *, method: str = ..., tolerance: float | None = ...,
                max_sweeps: int | None = ..., timeout: float | None = ...,
                return_status: Literal[True]) -> tuple[Values, Statuses]: ...

    def svdvals(self, a: npt.ArrayLike, *, method: str = "auto", tolerance: float | None = None,
                max_sweeps: int | None = None, timeout: float | None = None,
                return_status: bool = False) -> Values | tuple[Values, Statuses]:
        """Singular values, as numpy.linalg.svd(a, compute_uv=False) returns them.

        Args:
            a: array_like of shape (..., m, n); min(m, n) may be at most info().limits.max_values. float32, float64,
                complex64 and complex128 are computed in their own precision, integers and bool in float64, float16
                in float32. C- and Fortran-ordered matrices are sent from where they are; other strides, types and
                byte orders are converted piece by piece.
            method: "auto", "bidiagonal", "bisection" or "jacobi".
            tolerance: for "bisection" the relative width of an interval, in (0, 1/2], for "jacobi" the cosine of two
                columns, in (0, 1], at which it is done; None for the method's default. Other methods take none.
            max_sweeps: for "jacobi", sweeps before a matrix is given up; None for the default.
            timeout: seconds that the call may take, retries included; None or inf for no end.
            return_status: also return what became of each matrix.

        Returns:
            Array of shape (..., k), k = min(m, n), values descending, float32 for float32 and complex64, else float64.
            With return_status a pair: this array, and a uint8 array of shape (...) holding MatrixStatus numbers.
            A matrix with an infinity or a NaN has NaN for values and does not disturb its neighbours; an empty batch
            and matrices without rows or columns are answered without the server, empty, as by NumPy.

        Raises:
            InvalidArgument: the server refuses the request; `field` names what is wrong with it.
            Overloaded, Unavailable: refused, and retries did not help or do not fit into the timeout.
            DeadlineExceeded: the timeout passed.
            Error: any other failure of the call.
            numpy.linalg.LinAlgError: `a` has less than two dimensions.
            TypeError: elements of a type that has no place on the wire, such as longdouble or object.
            ValueError: `timeout` is NaN.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     values, status = client.svdvals([[[3, 0], [4, 5]], [[0, 2], [1, 0]]], return_status=True)
            >>> np.round(values ** 2, 12)
            array([[45.,  5.],
                   [ 4.,  1.]])
            >>> status == svdserve.MatrixStatus.OK
            array([ True,  True])
        """
        deadline = Deadline(timeout)
        operand = _codec.Operand(a)
        options = _codec.encode_options(method, tolerance, max_sweeps)
        result = _codec.Result(operand)
        if not operand.empty:
            self._compute(operand, options, deadline, result)
        return (result.values(), result.statuses()) if return_status else result.values()

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """What the server is and can do. Raises as svdvals does."""
        deadline = Deadline(timeout)
        send = functools.partial(self._send, self._stub.get_server_info, _proto.GetServerInfoRequest(), deadline)
        info = server_info(self._retry(send, send, deadline))
        self._limits = info.limits
        return info

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """State of the server, or of one service of it: "SERVING", "NOT_SERVING", ...

        One question and its answer: it is not repeated if the server cannot be reached. Raises Unavailable then, and
        Error for a service that the server does not have.
        """
        request = _proto.HealthCheckRequest(service=service)
        self._require_open()
        try:
            return health_name(self._stub.health_check(request, timeout=Deadline(timeout).remaining()).status)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._closed.is_set()) from error

    def close(self) -> None:
        """Ends the connection. Calls under way raise Cancelled. Closing twice is harmless."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _compute(self, operand: _codec.Operand, options: bytes, deadline: Deadline, result: _codec.Result) -> None:
        limits = self._limits or self.info(timeout=deadline.remaining()).limits
        pieces = operand.pieces(limits, self._settings.piece_bytes)
        decompose = self._stub.decompose

        def again(request: _codec.Request) -> Callable[[], Any]:
            return functools.partial(self._send, decompose, request, deadline)

        if len(pieces) == 1:  # a blocking call wakes one thread less than a future
            send = again(operand.request(pieces[0], options))
            result.put(pieces[0], self._retry(send, send, deadline))
            return

        under_way: collections.deque[tuple[_codec.Piece, _codec.Request, Any]] = collections.deque()

        def finish_oldest() -> None:
            piece, request, call = under_way[0]
            result.put(piece, self._retry(call.result, again(request), deadline))
            under_way.popleft()

        try:
            for piece in pieces:
                if len(under_way) == self._settings.max_in_flight:
                    finish_oldest()
                request = operand.request(piece, options)
                under_way.append((piece, request, self._send(decompose.future, request, deadline)))
            while under_way:
                finish_oldest()
        finally:
            for _, _, call in under_way:  # of a call that fails as a whole
                call.cancel()

    def _send(self, method: Callable[..., Any], request: Any, deadline: Deadline) -> Any:
        self._require_open()
        try:
            return method(request, timeout=deadline.remaining())
        except ValueError:  # gRPC's word for a closed channel
            self._require_open()
            raise

    def _retry(self, first: Callable[[], Any], again: Callable[[], Any], deadline: Deadline) -> Any:
        """The answer that `first` waits for; while it is worthwhile, of another attempt that `again` makes."""
        answer, attempt = first, 1
        while True:
            try:
                return answer()
            except grpc.FutureCancelledError:
                raise closed_error() from None
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error, self._closed.is_set())
                pause = self._settings.retry.pause(error, attempt, deadline.left())
                if pause is None:
                    self._limits = None  # the server may have been replaced by one with others
                    raise error from rpc_error
            self._closed.wait(pause)
            answer, attempt = again, attempt + 1

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()
