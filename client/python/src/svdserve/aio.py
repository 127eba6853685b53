"""The client for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Awaitable, Callable

import grpc
import grpc.aio

from . import _calls, _codec, _proto
from ._aio_verbs import VERBS, AsyncVerbs
from ._channel import (DEFAULT_IN_FLIGHT, DEFAULT_MESSAGE_BYTES, ChannelSettings, Connections, Deadline, Stub,
                       announcement, best_health, health_name, serves, small_request)
from ._display.progress import OnProgress, shown
from ._client import Client
from ._query import Query
from ._replicas import CHECK_PATIENCE, PauseAfter, Route, as_the_route_says
from ._stack import Job, Stack
from ._transfer import transfer
from .errors import Error, closed_error, from_rpc_error
from .values import CapacityPlan, Limits, RetryPolicy, ServerInfo, Tls, capacity_plan, server_info


class AsyncClient(AsyncVerbs):
    """Connections to a svdserve server, or to several, for coroutines of one event loop.

    The arguments are Client's, with the same errors.

    svdvals, svd, hsvd, eigh, eigvalsh, eigh_factored, eig, eigvals, capacity, precoders and mimo are Client's, to be
    awaited. An array must not change while its call is awaited. Cancelling the coroutine cancels the work at the server.
    The loop calls `progress`.

    The first call opens the channels, so that they belong to the loop which runs then. Packing a piece keeps the
    loop busy for about a millisecond a 4 MiB; smaller `piece_bytes` make the loop more responsive. Large matrices go over
    connections of their own, in a thread of the loop's default executor, and do not block the loop.

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

    def __init__(self, address: str | Iterable[str] | None = None, *, tls: Tls | bool = False,
                 retry: RetryPolicy | None = None, piece_bytes: int | None = None,
                 max_in_flight: int = DEFAULT_IN_FLIGHT, max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
                 connections: int | None = None, silence_timeout: float | None = None) -> None:
        self._settings = ChannelSettings(address, tls, retry, piece_bytes, max_in_flight, max_message_bytes, connections,
                                         silence_timeout)
        self._connections = Connections(self._settings, functools.partial(self._settings.open, grpc.aio))
        self._blocking = Connections(self._settings, functools.partial(self._settings.open, grpc))  # of large matrices
        self._checks: set[asyncio.Task[None]] = set()  # of health, under way
        self._closed = False
        self._limits: Limits | None = None

    async def info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, limits and devices. Raises as svdvals does."""
        info = server_info(await self._ask("GetServerInfo", timeout))
        self._limits = self._settings.bound(info.limits)
        return info

    async def plan_capacity(self, verb: str, *arguments: Any, requests_per_second: float, latency: float | None = None,
                            timeout: float | None = None, **options: Any) -> CapacityPlan:
        """The servers for a load of equal calls, as Client.plan_capacity."""
        with _calls.in_the_callers_words(verb, "a"):
            load = _calls.load_of(Client, VERBS, verb, arguments, options, requests_per_second=requests_per_second,
                                  latency_seconds=latency or 0.0)
            return capacity_plan(await self._ask("PlanCapacity", timeout, **load))

    async def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """State of the server, or of one service of it, as Client.health."""
        request, deadline = _proto.HealthCheckRequest(service=service), Deadline(timeout)
        servers = len(self._settings.addresses)
        self._require_open()

        async def ask(replica: int) -> str | Error:
            try:
                share = deadline.share(servers - replica)
                reply = await self._connections.stub(replica).health_check(request, timeout=share)
                return health_name(reply.status)
            except grpc.aio.AioRpcError as error:
                return from_rpc_error(error, self._closed, self._settings.addresses[replica], self._settings.tls)

        answers: list[str | Error] = []
        for replica in range(servers):
            answers.append(await ask(replica))
            if answers[-1] == "SERVING":
                break
        return best_health(answers)

    async def close(self) -> None:
        """Ends the connection. Calls under way raise Cancelled. Closing twice is harmless."""
        self._closed = True
        for check in self._checks:
            check.cancel()
        for channel in self._connections.channels():
            await channel.close()
        for channel in self._blocking.channels():
            channel.close()

    def __repr__(self) -> str:
        return f"<svdserve.AsyncClient {self._settings.address!r}, {'closed' if self._closed else 'open'}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _next(self, route: Route, size: int) -> Stub:
        """The connection of a route's next attempt. `size`: of the request in bytes."""
        self._require_open()
        if (replica := self._settings.rotation.due()) is not None:
            check = asyncio.create_task(self._check_health(replica))
            self._checks.add(check)  # asyncio itself does not keep it
            check.add_done_callback(self._checks.discard)
        return self._connections.stub(route.next(), size)

    async def _check_health(self, replica: int) -> None:
        try:
            reply = await self._connections.stub(replica).ask_health_soon(timeout=CHECK_PATIENCE)
            serving = serves(lambda: reply)
        except grpc.RpcError as error:
            serving = serves(functools.partial(_raise, error))
        if not self._closed:
            self._settings.rotation.checked(replica, serving)

    async def _run(self, call: _calls.Call, timeout: float | None, progress: OnProgress | bool | None = None) -> Any:
        deadline = Deadline(timeout)
        if not call.empty:
            loop = asyncio.get_running_loop()
            with shown(progress) as wanted, call.in_the_callers_words():
                on_progress = functools.partial(_run_in, loop, wanted) if callable(wanted) else wanted
                limits = self._limits or self._settings.bound((await self.info(timeout=deadline.remaining())).limits)
                messages, factors = call.plan(limits, self._settings.piece, on_progress)
                await self._compute(messages, call.query, deadline)
                if factors:
                    await self._compute_all_large(self._settings.stack(factors), deadline)
        return call.answer()

    async def _compute_all_large(self, stack: Stack, deadline: Deadline) -> None:
        """Sends large matrices, several at once."""

        async def lane() -> None:
            while (job := stack.take()) is not None:
                try:
                    await self._compute_large(job, deadline)
                except Exception as error:
                    if stack.failed(job, error):
                        return
                else:
                    stack.done(job)

        lanes = [asyncio.create_task(lane()) for _ in range(stack.lanes)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for task in lanes:  # of a coroutine that is cancelled
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        stack.raise_failure()

    async def _compute_large(self, job: Job, deadline: Deadline) -> None:
        """Sends a large matrix; again as Job.pause_after() says."""

        route = self._settings.route()

        async def once() -> None:
            self._next(route, 0)
            stub = self._blocking.stub(route.replica, job.factor.bytes)
            work = asyncio.get_running_loop().run_in_executor(None, functools.partial(
                transfer, stub.decompose_large, job.factor, timeout=deadline.remaining(), stop=job.stop))
            # A coroutine that is cancelled asks nobody how the thread ended: it was told to.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                await asyncio.shield(work)
            finally:  # of a coroutine that is cancelled
                if not work.done():
                    job.stop.request()
                await asyncio.wait([work])

        with job.factor.named_in_errors():
            await self._retry(route, once, deadline, job.pause_after)

    async def _compute(self, messages: list[_codec.Message], query: Query, deadline: Deadline) -> None:
        if not messages:
            return
        untaken, options = iter(messages), query.encode()

        async def worker() -> None:
            for message in untaken:  # the workers share the iterator: each takes the next message when it is free
                message.deliver(await self._send(query, message.request(options), deadline))

        workers = [asyncio.create_task(worker()) for _ in range(min(len(messages), self._settings.max_in_flight))]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:  # of a call that fails as a whole
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _ask(self, method: str, timeout: float | None, **fields: Any) -> Any:
        deadline, route, request = Deadline(timeout), self._settings.route(), small_request(method, **fields)

        def send() -> Awaitable[Any]:
            return self._next(route, 0).small(method)(request, timeout=deadline.remaining())  # type: ignore[no-any-return]

        return await self._retry(route, send, deadline)

    async def _send(self, query: Query, request: Any, deadline: Deadline) -> Any:
        metadata, route = announcement(request), self._settings.route()
        return await self._retry(route, lambda: self._next(route, request.size).of(query)(
            request, timeout=deadline.remaining(), metadata=metadata), deadline)

    async def _retry(self, route: Route, send: Callable[[], Awaitable[Any]], deadline: Deadline,
                     pause_after: PauseAfter = as_the_route_says) -> Any:
        """The reply to `send`, which is repeated while it is worthwhile and allowed."""
        while True:
            try:
                reply = await send()
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error, self._closed, route.address, self._settings.tls)
                pause = pause_after(error, route.pause(error, deadline.left()), deadline.left())
                if pause is None:
                    self._limits = None  # the server may have been replaced by one with others
                    raise error from rpc_error
            except asyncio.CancelledError:
                if self._closed:  # gRPC's word for a closed channel: the task itself was not cancelled
                    raise closed_error() from None
                raise
            else:
                route.succeeded()
                return reply
            await asyncio.sleep(pause)


def _raise(error: Exception) -> Any:
    raise error


def _run_in(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs `function` in the loop, for another thread, and returns or raises what it does."""
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(function(*arguments))
        except Exception as failure:
            answer.set_exception(failure)

    loop.call_soon_threadsafe(run)
    return answer.result()
