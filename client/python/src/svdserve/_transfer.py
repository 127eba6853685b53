"""A large matrix over gRPC: one attempt, which blocks.

AsyncClient runs it in a thread, since it copies and checks whole mebibytes at a time. Besides, gRPC's streams for asyncio
lose the server's status if the server ends a call in the middle of an upload.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from . import _codec, _large


class Stop:
    """Another thread's wish that a call ends, before it has begun or after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._call: Any = None

    @property
    def wanted(self) -> bool:
        return self._wanted

    def request(self) -> None:
        with self._lock:
            self._wanted = True
            if self._call is not None:
                self._call.cancel()

    def watch(self, call: Any) -> None:
        with self._lock:
            self._call = call
            if self.wanted:
                call.cancel()


def transfer(method: Callable[..., Any], factor: _large.Factor, *, timeout: float | None,
             stop: Stop | None = None) -> None:
    """Sends the large matrix by `method` of a channel and takes the results.

    Raises grpc.RpcError, Error for a reply that a server must not send, and exceptions of the caller's callback. The
    server is free at once however the call ends, by KeyboardInterrupt above all.
    """
    factor.restart()
    upload = _Upload(factor)
    call = method(upload.requests(), timeout=timeout)
    try:
        if stop is not None:
            stop.watch(call)
        for reply in call:
            factor.take(reply)
            upload.begin(call)
        factor.finish()
    except grpc.RpcError:
        if upload.failure is not None:
            raise upload.failure from None
        raise
    finally:
        call.cancel()
        upload.end()


class _Upload:
    """The requests, taken by a thread of gRPC's. It waits for the server to accept the matrix."""

    def __init__(self, factor: _large.Factor) -> None:
        self._factor = factor
        self._decided = threading.Event()
        self._call: Any = None
        self.failure: Exception | None = None  # of the caller's callback, or of a file behind a memmap

    def begin(self, call: Any) -> None:
        """The server has accepted the matrix and waits for the operand."""
        if not self._decided.is_set():
            self._call = call
            self._decided.set()

    def end(self) -> None:
        """The call is over."""
        self._call = None
        self._decided.set()

    def requests(self) -> Iterator[_codec.Request]:
        yield self._factor.open()
        self._decided.wait()
        chunks = self._factor.chunks()
        try:
            while (call := self._call) is not None and (request := next(chunks, None)) is not None:
                yield request
        except Exception as failure:
            self.failure = failure
            call.cancel()
