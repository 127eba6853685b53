"""A server in the test's own process that speaks the contract and does what a test tells it to: for what the real one
does only under load, or never."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Callable

import grpc
import numpy as np

from svdserve import _proto

Handler = Callable[[Any, grpc.ServicerContext], Any]
_DTYPES = {1: "<f4", 2: "<f8", 3: "<c8", 4: "<c16"}


def decompose(request: Any) -> Any:
    """The right answer."""
    batch = request.matrices
    shape = (batch.count, batch.rows, batch.cols)
    data = np.frombuffer(batch.data, _DTYPES[batch.data_type])
    a = data.reshape(shape) if batch.memory_order == 1 else data.reshape(batch.count, batch.cols, batch.rows)
    s = np.linalg.svd(a, compute_uv=False)
    return _proto.DecomposeResponse(singular_values=s.tobytes(), values_per_matrix=s.shape[1], count=batch.count)


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str = "refused",
           **details: Any) -> None:
    """Ends the call with google.rpc details: fields={path: description}, reason=..., metadata=..., retry_after=seconds."""
    status = _proto.RpcStatus(code=code.value[0], message=message)

    def add(detail: Any) -> None:
        status.details.add().Pack(detail)

    if "fields" in details:
        add(_proto.BadRequest(field_violations=[{"field": f, "description": d} for f, d in details["fields"].items()]))
    if "reason" in details:
        add(_proto.ErrorInfo(reason=details["reason"], domain="svdserve", metadata=details.get("metadata", {})))
    if "retry_after" in details:
        retry = _proto.RetryInfo()
        retry.retry_delay.seconds, retry.retry_delay.nanos = divmod(round(details["retry_after"] * 1e9), 10**9)
        add(retry)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


class FakeServer:
    """Attributes: `address`; `requests`, those it got; `infos`, how often it was asked for its limits;
    `handler`, what it does with a request."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[Any] = []
        self.infos = 0
        self.limits = dict(max_values=32, max_dimension=16384, max_matrices=1 << 24, max_message_bytes=64 << 20)
        self.handler: Handler = lambda request, context: decompose(request)
        self._lock = threading.Lock()

    def on_decompose(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self.requests.append(request)
        return self.handler(request, context)

    def on_info(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.infos += 1
        return _proto.GetServerInfoResponse(version="0", limits=self.limits)


@contextlib.contextmanager
def running() -> Iterator[FakeServer]:
    fake = FakeServer()
    server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.max_receive_message_length", -1),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_proto.SERVICE, {
        "Decompose": grpc.unary_unary_rpc_method_handler(
            fake.on_decompose, _proto.DecomposeRequest.FromString, _proto.DecomposeResponse.SerializeToString),
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(
            fake.on_info, _proto.GetServerInfoRequest.FromString, _proto.GetServerInfoResponse.SerializeToString)}),))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(0).wait()
