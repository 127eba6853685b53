"""Failures, as exceptions that carry the server's message."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import grpc

from . import _proto

if TYPE_CHECKING:
    from .values import Tls

_DETAILS_KEY = "grpc-status-details-bin"


@dataclasses.dataclass(frozen=True)
class FieldViolation:
    """One wrong field of a request."""

    field: str  #: path below the request, such as "matrices.rows"
    description: str  #: the error in it


class Error(Exception):
    """A call that failed. Every exception that this package raises for a failed call is one of its subclasses or this.

    Attributes:
        code: the gRPC status code.
        message: the server's or gRPC's description of the failure.
        reason: a stable word in capitals for programs, such as "OVERLOADED_BYTES"; "" where there is none.
        metadata: further facts that belong to the reason, by name.
        retry_after: seconds after which the server suggests to try again; None where it does not.
        violations: the wrong fields.
        request_id: the call's name in the server's log; "" where no server has failed it.
    """

    def __init__(self, message: str, *, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN, reason: str = "",
                 metadata: dict[str, str] | None = None, retry_after: float | None = None,
                 violations: tuple[FieldViolation, ...] = (), request_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = metadata or {}
        self.retry_after = retry_after
        self.violations = violations
        self.request_id = request_id

    def _reword(self, message: str) -> None:
        """Replaces the message."""
        self.message = message
        self.args = (message,)

    def __str__(self) -> str:
        reason = f", {self.reason}" if self.reason not in ("", self.code.name) else ""
        mistake = self.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)  # the message says it all
        request = f", request {self.request_id}" if self.request_id and not mistake else ""
        return f"{self.message} [{self.code.name}{reason}{request}]"


class InvalidArgument(Error, ValueError):
    """The request is wrong, and stays wrong if it is sent again."""

    @property
    def field(self) -> str:
        """Path of the first wrong field, such as "options.tolerance"; "" if none was named."""
        return self.violations[0].field if self.violations else ""


class Overloaded(Error):
    """The server is at a limit, which `retry_after` says, or the message is longer than it accepts."""


class DeadlineExceeded(Error, TimeoutError):
    """The timeout passed before the reply arrived. With the reason DEADLINE_UNREACHABLE the server, under load, saw that it
    would pass, and computed nothing."""


class Unavailable(Error, ConnectionError):
    """The server cannot be reached, or it is shutting down."""


class Cancelled(Error):
    """The call was cancelled, because the client was closed."""


class Unimplemented(Error):
    """The server at this address does not know the call."""


class Unauthenticated(Error):
    """The server does not accept this client's credentials."""


class Internal(Error):
    """The server failed, such as by a fault of a device, or its reply does not fit the request."""


_BY_CODE: dict[grpc.StatusCode, type[Error]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Unauthenticated,
    grpc.StatusCode.INTERNAL: Internal,
}


def invalid_argument(field: str, description: str, name: str = "") -> InvalidArgument:
    """The error of an argument that this package rejects itself, in the form of the server's errors.

    `name` is the argument's name where `field` does not tell it. Elsewhere the message begins with the field, until the verb
    puts its keyword there.
    """
    return InvalidArgument(f"{name or field}: {description}", code=grpc.StatusCode.INVALID_ARGUMENT,
                           reason="INVALID_FIELD", violations=(FieldViolation(field, description),))


def invalid_reply(message: str) -> Internal:
    """The exception for a reply that a server must not send. `message`: a sentence such as "it holds 3 matrices"."""
    return Internal(f"the server's reply is invalid: {message}", code=grpc.StatusCode.INTERNAL)


def damaged(message: str) -> Error:
    """Bytes that are not those that were sent."""
    return Error(message, code=grpc.StatusCode.DATA_LOSS, reason="CHUNK_CORRUPTED")


def closed_error() -> Cancelled:
    """The exception of a call whose client was closed."""
    return Cancelled("the client was closed", code=grpc.StatusCode.CANCELLED, reason="CANCELLED")


def deadline_error() -> DeadlineExceeded:
    """The exception of a call whose timeout passed on this side."""
    return DeadlineExceeded("the timeout passed before the reply arrived", code=grpc.StatusCode.DEADLINE_EXCEEDED,
                            reason="DEADLINE_EXCEEDED")


_NO_ANSWER = re.compile("failed to connect|errors? resolving|resolution failed|connections? to all backends|"
                        "empty address list", re.IGNORECASE)
#: Causes that are all that a user needs of gRPC's long message.
_CAUSES = re.compile("connection refused|no such file or directory|domain name not found|name or service not known|"
                     "network is unreachable|no route to host|connection timed out", re.IGNORECASE)
_THIS_MACHINE = re.compile(r"127\.|localhost:|\[::1\]|unix:")
#: The parts of gRPC's messages around the cause.
_AROUND_CAUSE = re.compile(r".*OPENSSL_internal:|.*last error: (?:[A-Z_]+: \S+: )?|: OK$|\.$")


def _disagreement(address: str, message: str, tls: Tls | None) -> str:
    """The sentence where server and client disagree on TLS, or on whom to trust; "" where the message has another cause."""
    lower = message.lower().replace("_", " ")
    if "security handshaker" in lower or ("empty address list" in lower and tls):
        return (f"no connection to the server at {address}: gRPC cannot use the PEM texts; Tls(key=) must belong to "
                "Tls(cert=)")
    if re.search("is not in peer certificate|hostname verification check failed", lower):
        fault = f"the certificate of the server at {address} is for another name", "give a name that it has in " \
                "Tls(server_name=), or in address"
    elif "wrong version number" in lower:
        fault = f"the server at {address} has no TLS", "leave tls out, or give the server its TLS files"
    elif "certificate verify failed" in lower:
        fault = f"the certificate of the server at {address} is not trusted, or has expired", "give the certificate of " \
                "the authority that signed it in Tls(ca=)"
    elif re.search("socket closed|connection reset|broken pipe", lower):
        fault = f"the server at {address} closed the connection", (
            "if it has TLS, give tls=svdserve.Tls(ca=) with the authority that signed its certificate" if not tls else
            "if it asks for a client certificate, give Tls(cert=, key=)" if tls.cert is None else
            "the certificate in Tls(cert=) must not have expired, and an authority of the server's --tls-client-ca must "
            "have signed it")
    elif tls and "handshake" in lower:
        fault = f"no encrypted connection to the server at {address}", "check tls; a server without TLS takes none"
    else:
        return ""
    return f"{fault[0]} ({_AROUND_CAUSE.sub('', message)}); {fault[1]}"


def _no_answer(address: str, message: str, tls: Tls | None) -> str:
    """The sentence for a server that is out of reach, from gRPC's."""
    if disagreement := _disagreement(address, message, tls):
        return disagreement
    known = _CAUSES.search(message)
    start = (f"start one with `svdserve --listen={address}` or svdserve.local()" if _THIS_MACHINE.match(address) else
             "check the address, and that a server runs there")
    return (f"no svdserve server responds at {address} ({known[0].lower() if known else message}); {start}, or name another "
            "in Client(address) or SVDSERVE_ADDRESS")


def from_rpc_error(error: Any, closed: bool, address: str, tls: Tls | None) -> Error:
    """The exception for a failed call to `address`: a grpc.RpcError that is a grpc.Call, or a grpc.aio.AioRpcError.

    `tls`: as the client has it. `closed`: the client was closed, which cancelled a cancelled call. Otherwise a server that
    stopped just as the call came in cancelled it: the next attempt may find another server.
    """
    code = error.code() or grpc.StatusCode.UNKNOWN
    details: dict[str, Any] = {}
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            details = _read_details(value)
    message = error.details() or ""
    described = message if message.upper() not in ("", code.name) else ""  # __str__ adds the code
    if code is grpc.StatusCode.CANCELLED and not details.get("reason"):
        if closed:
            return closed_error()
        return Unavailable("the server dropped the call" + (f": {described}" if described else ""),
                           code=grpc.StatusCode.UNAVAILABLE, **details)
    message = described or "the call failed, and its description is empty"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and not details and "larger than max" in message:  # gRPC's own limit
        message = f"the message is longer than its receiver accepts; max_message_bytes bounds replies: {message}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and (
            details.get("reason") == code.name or not details and (not described or "deadline exceeded" in message.lower())):
        return deadline_error()  # in several wordings
    if code is grpc.StatusCode.UNAVAILABLE and not details and _NO_ANSWER.search(message):
        message = _no_answer(address, message, tls)
    return _BY_CODE.get(code, Error)(message, code=code, **details)


def _read_details(serialized: bytes) -> dict[str, Any]:
    """Arguments of Error from a serialized google.rpc.Status; details that cannot be read or are unknown are left out."""
    found: dict[str, Any] = {}
    try:
        for detail in _proto.RpcStatus.FromString(serialized).details:
            kind = detail.type_url.rpartition("/")[2]
            if kind == "google.rpc.BadRequest":
                found["violations"] = tuple(FieldViolation(v.field, v.description) for v in
                                            _proto.BadRequest.FromString(detail.value).field_violations)
            elif kind == "google.rpc.ErrorInfo":
                info = _proto.ErrorInfo.FromString(detail.value)
                found["reason"], found["metadata"] = info.reason, dict(info.metadata)
            elif kind == "google.rpc.RetryInfo":
                delay = _proto.RetryInfo.FromString(detail.value).retry_delay
                found["retry_after"] = max(0.0, delay.seconds + delay.nanos * 1e-9)
            elif kind == "google.rpc.RequestInfo":
                found["request_id"] = _proto.RequestInfo.FromString(detail.value).request_id
    except _proto.DecodeError:
        pass  # a proxy's own trailer: code and message still say what happened
    return found
