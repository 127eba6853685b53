"""Code that the blocking and the asyncio client share: how a channel is opened, and how long a call may take."""

from __future__ import annotations

import dataclasses
import logging
import math
import numbers
import os
import re
import time
from typing import Any

from . import _large, _proto
from ._codec import Request, Response
from ._query import Query
from .errors import Error, deadline_error
from .values import Limits, RetryPolicy, Tls

# Pieces of this size, this many in flight at once. While the server computes one, the next is on the wire and the one
# after it is being packed. Larger pieces spend their time in page faults, smaller ones in the fixed cost of a call.
DEFAULT_PIECE_BYTES = 2 << 20
DEFAULT_IN_FLIGHT = 4

_log = logging.getLogger("svdserve")
_LONG_PAUSE = 1.0  # seconds; a call that takes so much longer looks like a hang

DEFAULT_MESSAGE_BYTES = 64 << 20
_LARGEST_MESSAGE_BYTES = 2**31 - 1  # that gRPC and protobuf can have

DEFAULT_ADDRESS = "127.0.0.1:50051"  # where a server listens unless it is told to otherwise
# host:port, or a name with one of gRPC's schemes. gRPC takes a host without a port for one with port 443.
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:")
_ADDRESS = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6|vsock):.+|([^:/]+|\[[^\]]+\]):\d{1,5}")
_URL = re.compile(r"(\w+)://([^/]*)/?.*")

# Seconds. A longer timeout, such as infinity, means none: gRPC's clock would overflow and the call fail at once.
_LONGEST_TIMEOUT = 1e9

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", -1),  # the operand is cut as the limits say
    ("grpc.enable_retries", 0),  # RetryPolicy does it, and knows RetryInfo
    # A server that is gone without a word, or stopped, is noticed while calls wait for it.
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 20000),
    ("grpc.http2.max_pings_without_data", 0),
)


def _checked(address: str | None) -> str:
    """The address that is meant, which SVDSERVE_ADDRESS sets for None. Raises TypeError and ValueError."""
    name = "address"
    if address is None:
        name, address = "SVDSERVE_ADDRESS", os.environ.get("SVDSERVE_ADDRESS") or DEFAULT_ADDRESS
    if not isinstance(address, str):
        raise TypeError(f"{name} is {address!r}, but must be a str such as '{DEFAULT_ADDRESS}', or None")
    if _ADDRESS.fullmatch(address):
        port = address.rpartition(":")[2]
        if not address.startswith(_SCHEMES) and not 0 < int(port) < 65536:
            raise ValueError(f"{name} is {address!r}, but its port must be between 1 and 65535")
        return address
    if url := _URL.fullmatch(address):
        tls = " and tls=True" if url[1] in ("https", "grpcs") else ""
        raise ValueError(f"{name} is the URL {address!r}, but must be host:port; write {_with_port(url[2])!r}{tls}")
    raise ValueError(f"{name} is {address!r}, but must be host:port or unix:/path; write {_with_port(address)!r}")


def _with_port(host: str) -> str:
    """The address that was probably meant."""
    if _ADDRESS.fullmatch(host):
        return host
    host = host.strip("[]")
    name, port = DEFAULT_ADDRESS.split(":")
    return f"[{host}]:{port}" if host.count(":") > 1 else f"{host.partition(':')[0] or name}:{port}"


class ChannelSettings:
    """The checked arguments of a client's constructor."""

    def __init__(self, address: str | None, tls: Tls | bool, retry: RetryPolicy | None, piece_bytes: int,
                 max_in_flight: int, max_message_bytes: int) -> None:
        address = _checked(address)
        if piece_bytes < 1:
            raise ValueError(f"piece_bytes is {piece_bytes}, but must be at least 1")
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight is {max_in_flight}, but must be at least 1")
        if not 1 <= max_message_bytes <= _LARGEST_MESSAGE_BYTES:
            raise ValueError(f"max_message_bytes is {max_message_bytes}, but must be 1 .. {_LARGEST_MESSAGE_BYTES}")
        tls = Tls() if tls is True else tls
        self.address = address
        self.retry = retry or RetryPolicy()
        self.piece_bytes = piece_bytes
        self.max_in_flight = max_in_flight
        self._max_message_bytes = max_message_bytes
        self._credentials = tls.credentials() if isinstance(tls, Tls) else None
        name = tls.server_name if isinstance(tls, Tls) else None
        self._options = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes),
                         *((("grpc.ssl_target_name_override", name),) if name else ()))

    def bound(self, limits: Limits) -> Limits:
        """A server's limits as this client cuts its requests: no reply is longer than it accepts."""
        return dataclasses.replace(limits, max_message_bytes=min(limits.max_message_bytes, self._max_message_bytes))

    def pause(self, error: Error, attempt: int, left: float | None) -> float | None:
        """RetryPolicy.pause(). A pause is a line of the log, a warning if it is long."""
        pause = self.retry.pause(error, attempt, left)
        if pause is not None:
            level = logging.WARNING if pause >= _LONG_PAUSE else logging.INFO
            _log.log(level, "%s: attempt %d of %d follows in %.2f s, after: %s", self.address, attempt + 1,
                     self.retry.max_attempts, pause, error)
        return pause

    def open(self, module: Any) -> Any:
        """A channel of `module`, which is grpc or grpc.aio. Nothing is sent before the first call."""
        if self._credentials is None:
            return module.insecure_channel(self.address, options=self._options)
        return module.secure_channel(self.address, self._credentials, options=self._options)


class Stub:
    """The calls of a channel. Those of batches take and return the codec's values, so that bytes are not copied again."""

    def __init__(self, channel: Any) -> None:
        def of_batches(method: str) -> Any:
            return channel.unary_unary(method, request_serializer=Request.serialize,
                                       response_deserializer=Response.parse)

        self.decompose = of_batches(_proto.DECOMPOSE)
        self.eigendecompose = of_batches(_proto.EIGENDECOMPOSE)
        self.decompose_large = channel.stream_stream(_proto.DECOMPOSE_LARGE, request_serializer=Request.serialize,
                                                     response_deserializer=_large.Reply.parse)
        self._channel = channel
        self.health_check = self._of_messages(_proto.HEALTH_CHECK)

    def _of_messages(self, path: str) -> Any:
        request, reply = _proto.message_classes(path)
        return self._channel.unary_unary(path, request_serializer=request.SerializeToString,
                                         response_deserializer=reply.FromString)

    def small(self, method: str, **fields: Any) -> tuple[Any, Any]:
        """A unary call of the service that has no matrices, by its name, and its request."""
        path = f"/{_proto.SERVICE}/{method}"
        request, _ = _proto.message_classes(path)
        return self._of_messages(path), request(**fields)

    def of(self, query: Query) -> Any:
        """The call that takes requests of the query."""
        return self.eigendecompose if query.eigenproblem else self.decompose


def announcement(request: Request) -> tuple[tuple[str, str], ...]:
    """Metadata of a call with a batch: the request's length, so that a server can reserve memory before it reads it."""
    return ((_proto.REQUEST_BYTES_KEY, str(request.size)),)


class Deadline:
    """The moment at which a call with `timeout` seconds must be over, all its pieces and retries included."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not isinstance(timeout, numbers.Real):
            raise TypeError(f"timeout is {timeout!r}, but must be seconds or None")
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout is NaN, but must be seconds or None")
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout is {timeout}, but must be at least 0 seconds; None is for no limit")
        self._end = None if timeout is None or timeout > _LONGEST_TIMEOUT else time.monotonic() + timeout

    def left(self) -> float | None:
        """Seconds left, below zero when it is over; None without a timeout."""
        return None if self._end is None else self._end - time.monotonic()

    def remaining(self) -> float | None:
        """Seconds left for another call; None without a timeout. Raises DeadlineExceeded when there are none."""
        left = self.left()
        if left is not None and left <= 0:
            raise deadline_error()
        return left


def there(reply: Any) -> Any:
    """The reply. gRPC 1.59 has none at times when the timeout passes just as it arrives. Raises DeadlineExceeded."""
    if reply is None:
        raise deadline_error()
    return reply


def health_name(number: int) -> str:
    """Such as "SERVING"."""
    return {v: k for k, v in _proto.SERVING_STATUSES.items()}.get(number, f"UNKNOWN_{number}")
