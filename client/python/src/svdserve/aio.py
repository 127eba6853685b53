"""The client for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Awaitable, Callable, Literal, overload

import grpc
import grpc.aio
import numpy.typing as npt

from . import _codec, _proto
from ._channel import DEFAULT_IN_FLIGHT, DEFAULT_PIECE_BYTES, ChannelSettings, Deadline, Stub, health_name
from ._client import Statuses, Values
from .errors import closed_error, from_rpc_error
from .values import Limits, RetryPolicy, ServerInfo, Tls, server_info


class AsyncClient:
    """A connection to a svdserve server for coroutines of one event loop. Arguments are Client's, and raise as there.

    The channel is opened by the first call, so that it belongs to the loop which runs then. Packing a piece keeps the
    loop busy for about a millisecond a 4 MiB; smaller `piece_bytes` make the loop more responsive.
    """

    def __init__(self, address: str, *, tls: Tls | bool = False, retry: RetryPolicy | None = None,
                 piece_bytes: int = DEFAULT_PIECE_BYTES, max_in_flight: int = DEFAULT_IN_FLIGHT) -> None:
        self._settings = ChannelSettings(address, tls, retry, piece_bytes, max_in_flight)
        self._channel: Any = None
        self._stub: Stub | None = None
        self._closed = False
        self._limits: Limits | None = None

    @overload
    async def svdvals(self, a: npt.ArrayLike, *, method: str = ..., tolerance: float | None = ...,
                      max_sweeps: int | None = ..., timeout: float | None = ...,
                      return_status: Literal[False] = ...) -> Values: ...

    @overload
    async def svdvals(self, a: npt.ArrayLike, *, method: str = ..., tolerance: float | None = ...,
                      max_sweeps: int | None = ..., timeout: float | None = ...,
                      return_status: Literal[True]) -> tuple[Values, Statuses]: ...

    async def svdvals(self, a: npt.ArrayLike, *, method: str = "auto", tolerance: float | None = None,
                      max_sweeps: int | None = None, timeout: float | None = None,
                      return_status: bool = False) -> Values | tuple[Values, Statuses]:
        """Singular values of a, shape (..., m, n): shape (..., min(m, n)), descending.

        Arguments, result and exceptions are those of Client.svdvals. `a` must not change while the call is awaited.
        Cancelling the coroutine cancels what is under way at the server.

        Example:
            >>> import asyncio, numpy as np, svdserve
            >>> async def example():
            ...     async with svdserve.AsyncClient(address) as client:
            ...         return await asyncio.gather(client.svdvals(np.eye(2)), client.svdvals(np.ones((3, 1, 4))))
            >>> asyncio.run(example())
            [array([1., 1.]), array([[2.],
                   [2.],
                   [2.]])]
        """
        deadline = Deadline(timeout)
        operand = _codec.Operand(a)
        options = _codec.encode_options(method, tolerance, max_sweeps)
        result = _codec.Result(operand)
        if not operand.empty:
            await self._compute(operand, options, deadline, result)
        return (result.values(), result.statuses()) if return_status else result.values()

    async def info(self, *, timeout: float | None = None) -> ServerInfo:
        """What the server is and can do. Raises as svdvals does."""
        deadline = Deadline(timeout)
        request = _proto.GetServerInfoRequest()
        info = server_info(await self._retry(
            lambda: self._open().get_server_info(request, timeout=deadline.remaining()), deadline))
        self._limits = info.limits
        return info

    async def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """State of the server, or of one service of it, as Client.health."""
        request = _proto.HealthCheckRequest(service=service)
        try:
            return health_name((await self._open().health_check(request, timeout=Deadline(timeout).remaining())).status)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._closed) from error

    async def close(self) -> None:
        """Ends the connection. Calls under way raise Cancelled. Closing twice is harmless."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def _open(self) -> Stub:
        if self._closed:
            raise closed_error()
        if self._stub is None:
            self._channel = self._settings.open(grpc.aio)
            self._stub = Stub(self._channel)
        return self._stub

    async def _compute(self, operand: _codec.Operand, options: bytes, deadline: Deadline,
                       result: _codec.Result) -> None:
        limits = self._limits or (await self.info(timeout=deadline.remaining())).limits
        pieces = operand.pieces(limits, self._settings.piece_bytes)
        untaken = iter(pieces)

        async def worker() -> None:
            for piece in untaken:  # the workers share the iterator: each takes the next piece when it is free
                request = operand.request(piece, options)
                result.put(piece, await self._retry(
                    lambda: self._open().decompose(request, timeout=deadline.remaining()), deadline))

        workers = [asyncio.create_task(worker()) for _ in range(min(len(pieces), self._settings.max_in_flight))]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:  # of a call that fails as a whole
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _retry(self, send: Callable[[], Awaitable[Any]], deadline: Deadline) -> Any:
        """The answer to `send`; while it is worthwhile, it is sent again."""
        attempt = 1
        while True:
            try:
                return await send()
            except grpc.aio.AioRpcError as rpc_error:
                error = from_rpc_error(rpc_error, self._closed)
                pause = self._settings.retry.pause(error, attempt, deadline.left())
                if pause is None:
                    self._limits = None  # the server may have been replaced by one with others
                    raise error from rpc_error
            except asyncio.CancelledError:
                if self._closed:  # gRPC's word for a closed channel: the task itself was not cancelled
                    raise closed_error() from None
                raise
            await asyncio.sleep(pause)
            attempt += 1
