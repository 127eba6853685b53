"""Code that the blocking and the asyncio client share: how a channel is opened, and how long a call may take."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import numbers
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from . import _large, _proto
from ._codec import PieceSize, Request, Response
from ._query import Query
from ._replicas import Rotation, Route
from ._stack import Stack
from .errors import Error, deadline_error
from .values import Limits, RetryPolicy, Tls

# Pieces of this size, this many in flight at once. While the server computes one, the next is on the wire and the one
# after it is being packed. Larger pieces spend their time in page faults, smaller ones in the fixed cost of a call.
DEFAULT_IN_FLIGHT = 4

_MOST_CONNECTIONS, _CPUS_OF_ONE = 4, 4  # a connection keeps several processors busy, on both sides
_MOST_LANES = 4
_WORTH_A_TURN = 64 << 10  # bytes of a request from which it takes a connection of its own

DEFAULT_MESSAGE_BYTES = 64 << 20
_LARGEST_MESSAGE_BYTES = 2**31 - 1  # that gRPC and protobuf can have

DEFAULT_ADDRESS = "127.0.0.1:50051"  # where a server listens unless it is told to otherwise
# host:port, or a name with one of gRPC's schemes. gRPC takes a host without a port for one with port 443.
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:")
_ADDRESS = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6|vsock):.+|([^:/;\s]+|\[[^\]]+\]):\d{1,5}")
_URL = re.compile(r"(\w+)://([^/]*)/?.*")

# Seconds. A longer timeout, such as infinity, means none: gRPC's clock would overflow and the call fail at once.
_LONGEST_TIMEOUT = 1e9

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", -1),  # the operand is cut as the limits say
    ("grpc.enable_retries", 0),  # RetryPolicy does it, and knows RetryInfo
    ("grpc.use_local_subchannel_pool", 1),  # each channel a connection of its own
    # A restarted server is found again soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
)
# All servers of a name take turns, without those that do not serve. New ones are found when a connection ends.
_OF_NAMES: tuple[tuple[str, Any], ...] = (
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}],
                                        "healthCheckConfig": {"serviceName": _proto.SERVICE}})),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.dns_min_time_between_resolutions_ms", 2000),
)


def _keepalive(silence_timeout: float | None, has_others: bool) -> tuple[tuple[str, Any], ...]:
    """A server that is gone without a word, or stopped, is noticed while calls wait for it: fast where others are there."""
    if silence_timeout is None:
        silence_timeout = 4.0 if has_others else 50.0
    ms = int(1000 * min(silence_timeout, 86400.0))
    ping = max(1000, ms // 2 if has_others else ms * 3 // 5)  # more often than a second the server takes none
    # Calls wait for a connection that is being made. The least backoff bounds how long that takes.
    bound = (("grpc.min_reconnect_backoff_ms", 2000),) if has_others else ()
    # Newer releases of gRPC have a timeout for all pings, a minute unless it is set, and keepalive's means nothing to them.
    patience = max(10, ms - ping)
    return (("grpc.keepalive_time_ms", ping), ("grpc.keepalive_timeout_ms", patience),
            ("grpc.http2.ping_timeout_ms", patience), *bound)


def addresses_of(address: str | Iterable[str] | None) -> tuple[str, ...]:
    """Those that are meant, which SVDSERVE_ADDRESS sets for None. Raises TypeError and ValueError."""
    if address is None:
        address = os.environ.get("SVDSERVE_ADDRESS") or None
        return _split(address, "SVDSERVE_ADDRESS") if address else (DEFAULT_ADDRESS,)
    if isinstance(address, str):
        return _split(address, "address")
    if isinstance(address, Iterable) and not isinstance(address, (bytes, bytearray)):
        if several := tuple(_checked(one, "address") for one in address):
            return tuple(dict.fromkeys(several))
    raise TypeError(f"address is {address!r}, but must be a str such as '{DEFAULT_ADDRESS}', a list of them, or None")


def _split(addresses: str, name: str) -> tuple[str, ...]:
    """Each address once, or it would have two shares."""
    return tuple(dict.fromkeys(_checked(one.strip(), name) for one in addresses.split(",")))


def _checked(address: str, name: str) -> str:
    """One address. Raises TypeError and ValueError."""
    if not isinstance(address, str):
        raise TypeError(f"{name} is {address!r}, but must be a str such as '{DEFAULT_ADDRESS}', or None")
    if _ADDRESS.fullmatch(address):
        port = address.rpartition(":")[2]
        if not address.startswith(_SCHEMES) and not 0 < int(port) < 65536:
            raise ValueError(f"{name} is {address!r}, but its port must be between 1 and 65535")
        return address
    if not _URL.fullmatch(address) and (several := re.split(r"[;\s]+", address.strip()))[1:]:
        raise ValueError(f"{name} is {address!r}, but must have a comma between two servers; write {','.join(several)!r}")
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


def _cpus() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ChannelSettings:
    """The checked arguments of a client's constructor."""

    def __init__(self, address: str | Iterable[str] | None, tls: Tls | bool, retry: RetryPolicy | None,
                 piece_bytes: int | None, max_in_flight: int, max_message_bytes: int, connections: int | None,
                 silence_timeout: float | None) -> None:
        self.addresses = addresses_of(address)
        if connections is None:
            connections = max(1, min(_MOST_CONNECTIONS, _cpus() // _CPUS_OF_ONE))
        for name, value in (("piece_bytes", piece_bytes), ("max_in_flight", max_in_flight), ("connections", connections)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        if not 1 <= max_message_bytes <= _LARGEST_MESSAGE_BYTES:
            raise ValueError(f"max_message_bytes is {max_message_bytes}, but must be 1 .. {_LARGEST_MESSAGE_BYTES}")
        if silence_timeout is not None and not silence_timeout > 0:
            raise ValueError(f"silence_timeout is {silence_timeout}, but must be above 0 seconds; None is for the default")
        self.address = ",".join(self.addresses)
        self.retry = retry or RetryPolicy()
        self.piece = PieceSize(piece_bytes) if piece_bytes else PieceSize.of_servers(len(self.addresses))
        self.max_in_flight = max_in_flight * len(self.addresses)  # each server has its pieces
        self.connections = connections
        # Threads that send the pieces of a call. One copies into a message while another is inside the kernel.
        self.lanes = min(connections, _MOST_LANES)
        self.rotation = Rotation(self.addresses, random.randrange(len(self.addresses)))
        self._max_message_bytes = max_message_bytes
        self.tls = tls if isinstance(tls, Tls) else Tls() if tls else None
        self._credentials = self.tls.credentials() if self.tls else None
        server_name = self.tls.server_name if self.tls else None
        self._options = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes),
                         *_keepalive(silence_timeout, self.rotation.width > 1),
                         *((("grpc.ssl_target_name_override", server_name),) if server_name else ()))

    def bound(self, limits: Limits) -> Limits:
        """A server's limits as this client cuts its requests: no reply is longer than it accepts."""
        return dataclasses.replace(limits, max_message_bytes=min(limits.max_message_bytes, self._max_message_bytes))

    def stack(self, factors: list[_large.Factor]) -> Stack:
        """The large matrices of a call."""
        return Stack(factors, self.max_in_flight, self.rotation.width, self.retry)

    def route(self) -> Route:
        """For the attempts of one message."""
        return Route(self.rotation, self.retry)

    def open(self, module: Any, replica: int) -> Any:
        """A channel of `module`, which is grpc or grpc.aio. Nothing is sent before the first call."""
        address = self.addresses[replica]
        options = (*self._options, *_OF_NAMES) if address.startswith("dns:") else self._options
        if self._credentials is None:
            return module.insecure_channel(address, options=options)
        return module.secure_channel(address, self._credentials, options=options)


class Connections:
    """The connections of a client to its servers, opened when they are first needed."""

    def __init__(self, settings: ChannelSettings, open_channel: Callable[[int], Any]) -> None:
        self._settings = settings
        self._open = open_channel
        self._stubs: dict[tuple[int, int], Stub] = {}
        self._channels: list[Any] = []
        self._turns = collections.defaultdict[int, Any](itertools.count)
        self._lock = threading.Lock()

    def stub(self, replica: int, request_bytes: int = 0) -> Stub:
        """A connection to the replica. Small messages share one, for larger ones all take turns."""
        many = self._settings.connections > 1 and request_bytes >= _WORTH_A_TURN
        place = replica, next(self._turns[replica]) % self._settings.connections if many else 0
        if (stub := self._stubs.get(place)) is not None:
            return stub
        with self._lock:
            if (stub := self._stubs.get(place)) is None:
                channel = self._open(replica)
                self._channels.append(channel)
                stub = self._stubs[place] = Stub(channel)
            return stub

    def channels(self) -> list[Any]:
        """Those that are open."""
        with self._lock:
            return list(self._channels)


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

    def ask_health(self, **options: Any) -> Any:
        """The future of a question whether the server serves decompositions."""
        return self.health_check.future(_proto.HealthCheckRequest(service=_proto.SERVICE), **options)

    def _of_messages(self, path: str) -> Any:
        request, reply = _proto.message_classes(path)
        return self._channel.unary_unary(path, request_serializer=request.SerializeToString,
                                         response_deserializer=reply.FromString)

    def ask_health_soon(self, **options: Any) -> Any:
        """The same of grpc.aio, to be awaited."""
        return self.health_check(_proto.HealthCheckRequest(service=_proto.SERVICE), **options)

    def small(self, method: str) -> Any:
        """A unary call of the service that has no matrices, by its name."""
        return self._of_messages(f"/{_proto.SERVICE}/{method}")

    def of(self, query: Query) -> Any:
        """The call that takes requests of the query."""
        return self.eigendecompose if query.eigenproblem else self.decompose


def small_request(method: str, **fields: Any) -> Any:
    """The request of Stub.small(method)."""
    request, _ = _proto.message_classes(f"/{_proto.SERVICE}/{method}")
    return request(**fields)


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

    def share(self, of: int) -> float | None:
        """An even share of what remaining() says, for each of `of` calls in turn."""
        remaining = self.remaining()
        return None if remaining is None else remaining / of

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


def serves(ask: Callable[[], Any]) -> bool:
    """Whether a health check, which `ask` waits for, says so. A server without the service of health serves."""
    try:
        return bool(ask().status == _proto.SERVING_STATUSES["SERVING"])
    except grpc.RpcError as error:
        return getattr(error, "code", lambda: None)() is grpc.StatusCode.UNIMPLEMENTED
    except Exception:  # such as of a future that the end of the client cancelled
        return False


def best_health(answers: Iterable[str | Error]) -> str:
    """The health of several servers, from their states or errors: one that serves is enough.

    Raises the first error if there is nothing else.
    """
    seen: list[str | Error] = []
    for answer in answers:
        if answer == "SERVING":
            return answer  # the others need not be asked
        seen.append(answer)
    states = [answer for answer in seen if isinstance(answer, str)]
    if states:
        return states[0]
    assert isinstance(seen[0], Error)
    raise seen[0]


def health_name(number: int) -> str:
    """Such as "SERVING"."""
    return {v: k for k, v in _proto.SERVING_STATUSES.items()}.get(number, f"UNKNOWN_{number}")
