"""Values that calls take and return."""

from __future__ import annotations

import dataclasses
import enum
import os
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

import grpc
import numpy as np
import numpy.typing as npt

from . import _proto
from ._display import show
from .errors import Error, Overloaded, Unavailable, invalid_reply

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The arrays of a result. All are torch's if the operand is, and so for other libraries.
    VectorsT = TypeVar("VectorsT", default=npt.NDArray[Any])
    ValuesT = TypeVar("ValuesT", default=npt.NDArray[np.floating[Any]])
    InexactT = TypeVar("InexactT", default=npt.NDArray[np.inexact[Any]])
    StatusT = TypeVar("StatusT", default=npt.NDArray[np.uint8])
else:
    from typing import TypeVar

    VectorsT, ValuesT, InexactT, StatusT = map(TypeVar, ("VectorsT", "ValuesT", "InexactT", "StatusT"))


class MatrixStatus(enum.IntEnum):
    """The outcome of one matrix."""

    OK = 0  #: its values are right
    NON_FINITE = 1  #: it holds an infinity or a NaN: all its values are NaN
    NOT_CONVERGED = 2  #: the iteration limit was reached: its values are the best known
    #: A value exceeds the largest finite number and is +inf; the others are right. An eigenvalue may be -inf, and a
    #: complex one has an infinite part.
    OUT_OF_RANGE = 3
    BY_QR = 4  #: "jacobi" of eig missed its bound: the results are those of "qr", and right
    NEAR_DEFECTIVE = 5  #: with condition=True: a matrix with a defective eigenvalue is near; the results are right
    UNKNOWN = 255  #: a status that this client does not know: do not rely on the matrix's results


def named_statuses(numbers: Any) -> npt.NDArray[np.uint8]:
    """The statuses in a reply, numbers of the contract, as numbers of MatrixStatus: never OK."""
    numbers = np.asarray(numbers)
    known = (numbers >= MatrixStatus.NON_FINITE) & (numbers <= MatrixStatus.NEAR_DEFECTIVE)
    return np.where(known, numbers, MatrixStatus.UNKNOWN).astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How good a decomposition is, computed where it was made: numbers of all k triplets, whichever of them are returned.

    The three numbers are the largest over the matrices, without those that are NON_FINITE.
    """

    #: norm(A - U S V^H) / norm(A), Frobenius norms; 0 for the zero matrix. For eig norm(A V - V L) / norm(A), or that of
    #: the left eigenvectors if it is larger
    residual: float
    left_orthogonality: float  #: norm(I - U^H U); 0 for eig, whose vectors are not orthogonal
    right_orthogonality: float  #: norm(I - V^H V); 0 for eig
    each_matrix: npt.NDArray[np.floating[Any]] | None = None  #: (..., 3), those of each matrix; None if not requested


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a large matrix is: the argument of `progress`."""

    #: "upload", "queued", "prepare", "precondition", "warm_start", "sweep", "subspace", "finish" or "download"
    stage: str
    #: 0 .. 1: of the upload, of the computation's time (an estimate that never falls), of the download
    fraction: float = 0.0
    sweep: int = 0  #: sweeps begun
    rotations: int = 0  #: so far
    proper_rotations: int = 0  #: of these, those that changed more than the order of columns
    off_diagonal: float = 1.0  #: the largest cosine of two columns, of the last whole sweep or the check after it
    elapsed_seconds: float = 0.0  #: since the call began
    matrix: int = 0  #: which of a stack
    overall: float = 0.0  #: 0 .. 1 of the whole call, an estimate by time that never falls
    eta_seconds: float | None = None  #: until the call ends, an estimate; None where there is none yet
    device: str = ""  #: that computes it, several joined by commas; "" until one has taken it


@dataclasses.dataclass(frozen=True)
class Phase:
    """Time of a part of the computation of a large matrix."""

    name: str  #: such as "qr", "gram", "inner", "postmultiply"
    seconds: float
    flops: float  #: real floating-point operations that the mathematics needs


@dataclasses.dataclass(frozen=True)
class LargeSummary:
    """The report of the server on a large matrix, beside its results."""

    status: int  #: a number of MatrixStatus: OK, NOT_CONVERGED, OUT_OF_RANGE or UNKNOWN
    #: The method used. SVDs: "auto" where sweeps started from an eigenbasis, or a subspace had the triplets; else
    #: "jacobi". Eigenproblems: never "auto".
    method: str
    device: str  #: several that computed it together are joined by a comma
    sweeps: int
    rotations: int
    proper_rotations: int
    upload_seconds: float  #: of the server's clock, as the others
    queue_seconds: float  #: until a device took it
    compute_seconds: float
    download_seconds: float
    phases: tuple[Phase, ...] = ()
    certificate: Certificate | None = None
    rank: int = 0  #: of an eigenproblem: eigenvalues that are not exact zeros
    #: An eigenproblem with certificate has this from "factored" and "jacobi": at least the condition number of G with
    #: unit columns, A = G J G^H. None where it is not computed. Relative errors of the eigenvalues of G J G^H are at
    #: most 10 max(m, 8) u times this.
    factor_condition: float | None = None
    subspace_steps: int = 0  #: with top_k: of the subspace that gave the results; 0: all triplets were computed
    #: Devices that computed the last sweep together. 1: one device computed all of it. 0: an older server does not say.
    members: int = 0


class _Reported(Generic[StatusT]):
    """The server's report, beside the arrays of a result."""

    status: StatusT
    certificate: Certificate | None
    summaries: tuple[LargeSummary, ...]

    def reported(self, status: StatusT, certificate: Certificate | None,
                 summaries: Iterable[LargeSummary]) -> Self:
        """The result itself, with its report."""
        self.status = status
        self.certificate = certificate
        self.summaries = tuple(summaries)
        return self


class _UsVh(NamedTuple, Generic[VectorsT, ValuesT]):
    U: VectorsT
    S: ValuesT
    Vh: VectorsT


class SVDResult(show.Shown, _UsVh[VectorsT, ValuesT], _Reported[StatusT]):
    """U, S and Vh, which unpack as the result of numpy.linalg.svd does.

    Attributes:
        status: uint8 array of shape (...): the status of each matrix, numbers of MatrixStatus.
        certificate: Certificate; None if it was not requested.
        summaries: a LargeSummary of each large matrix; empty for small ones.
    """

    def _rows(self) -> show.Rows:
        return [*show.arrays(U=self.U, S=self.S, Vh=self.Vh), *show.spectrum(self.S, complete=self._is_complete()),
                *show.report(self, MatrixStatus)]

    def _is_complete(self) -> bool:
        """Whether there are all singular values, as without top_k."""
        u, s, vh = (getattr(x, "shape", (0, 0)) for x in (self.U, self.S, self.Vh))
        return bool(s[-1] == min(u[-2], vh[-1]))


class _Eigh(NamedTuple, Generic[VectorsT, ValuesT]):
    eigenvalues: ValuesT
    eigenvectors: VectorsT


class EighResult(show.Shown, _Eigh[VectorsT, ValuesT], _Reported[StatusT]):
    """Eigenvalues and eigenvectors, which unpack as the result of numpy.linalg.eigh does.

    Attributes:
        status: uint8 array of shape (...): the status of each matrix, numbers of MatrixStatus.
        certificate: Certificate; None if it was not requested. Its residual is norm(A V - V diag(w)) / norm(A), its
            left_orthogonality norm(I - V^H V). Its right_orthogonality is the same of small matrices, 0 of large ones.
        summaries: a LargeSummary of each large matrix. Its `factor_condition` bounds the errors of small eigenvalues.
    """

    def _rows(self) -> show.Rows:
        return [*show.arrays(eigenvalues=self.eigenvalues, eigenvectors=self.eigenvectors),
                *show.spectrum(self.eigenvalues), *show.report(self, MatrixStatus)]


class _Conditioned(_Reported[StatusT], Generic[ValuesT, StatusT]):
    """The report about a general eigenproblem."""

    condition: ValuesT | None = None
    #: The condition number of each matrix's eigenvectors V, an array (...): norm(V) * norm(V^-1), Frobenius norms. It is
    #: sqrt(n * sum(condition**2)), as columns of V have norm 1. That holds for distinct eigenvalues: of equal ones left and
    #: right eigenvectors need not belong together. An array of float64; None if `condition` is.
    vectors_condition: ValuesT | None = None

    def conditioned(self, condition: ValuesT | None, vectors_condition: ValuesT | None) -> Self:
        """The result itself, with the condition numbers of its eigenvalues and of its eigenvectors."""
        self.condition = condition
        self.vectors_condition = vectors_condition
        return self

    def _report(self) -> show.Rows:
        """The rows of a summary that follow those of the eigenvalues."""
        conditions = [] if self.condition is None else [
            ("condition", show.kind(self.condition) + show.extent(self.condition))]
        return [*conditions, *show.report(self, MatrixStatus)]


def condition_of_vectors(condition: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """sqrt(n * sum(condition**2)) of each matrix."""
    condition = condition.astype(np.float64)
    # Squares of large conditions would overflow.
    largest = np.max(condition, axis=-1, initial=1.0)
    scale = np.where(np.isfinite(largest), largest, 1.0)
    return np.asarray(scale * np.sqrt(condition.shape[-1] * np.sum((condition / scale[..., None])**2, axis=-1)))


class _Eig(NamedTuple, Generic[InexactT]):
    eigenvalues: InexactT
    eigenvectors: InexactT


class EigResult(show.Shown, _Eig[InexactT], _Conditioned[ValuesT, StatusT]):
    """Eigenvalues and eigenvectors, which unpack as the result of numpy.linalg.eig does.

    Attributes:
        status: uint8 array of shape (...): the status of each matrix, numbers of MatrixStatus.
        certificate: Certificate; None if it was not requested. Its residual is norm(A V - V diag(w)) / norm(A), its other
            numbers are 0: no eigenvectors of a general matrix need be orthogonal.
        summaries: a LargeSummary of each large matrix.
        condition: array (..., n), the condition number of each eigenvalue, 1 / abs(vl^H v) for its left and right
            eigenvectors of norm 1; None if it was not requested.
        vectors_condition: array (...), the condition number of V; None if `condition` is.
    """

    def _rows(self) -> show.Rows:
        return [*show.arrays(eigenvalues=self.eigenvalues, eigenvectors=self.eigenvectors),
                *show.spectrum(self.eigenvalues, conditioned=False), *self._report()]


class _EigLeft(NamedTuple, Generic[InexactT]):
    eigenvalues: InexactT
    left_eigenvectors: InexactT
    eigenvectors: InexactT


class EigLeftResult(show.Shown, _EigLeft[InexactT], _Conditioned[ValuesT, StatusT]):
    """Eigenvalues, left and right eigenvectors, which unpack as the result of scipy.linalg.eig(a, left=True) does.

    Attributes:
        status, certificate, summaries, condition, vectors_condition: as of EigResult. The residual is that of the left
            eigenvectors W where it is the larger one, norm(W^H A - diag(w) W^H) / norm(A).
    """


    def _rows(self) -> show.Rows:
        named = dict(eigenvalues=self.eigenvalues, left_eigenvectors=self.left_eigenvectors, eigenvectors=self.eigenvectors)
        return [*show.arrays(**named), *show.spectrum(self.eigenvalues, conditioned=False), *self._report()]


@dataclasses.dataclass(frozen=True, repr=False)
class MimoResult(show.Shown, Generic[VectorsT, StatusT]):
    """MIMO numbers of channels. Numbers that were not requested are None; Client.mimo defines each."""

    status: StatusT  #: (...): numbers of MatrixStatus
    capacity: VectorsT | None = None  #: (..., n_snr), bit/s/Hz
    water_filling: VectorsT | None = None  #: (..., n_snr), bit/s/Hz
    stream_snr: VectorsT | None = None  #: (..., n_snr, k), linear
    condition_number: VectorsT | None = None  #: (...)
    effective_rank: VectorsT | None = None  #: (...)
    threshold_rank: VectorsT | None = None  #: (...), whole numbers
    precoders: VectorsT | None = None  #: (..., n, L), leading columns of V
    combiners: VectorsT | None = None  #: (..., m, L), leading columns of U
    singular_values: VectorsT | None = None  #: (..., k)
    capacity_gradient: VectorsT | None = None  #: (..., n_snr, m, n)
    water_filling_gradient: VectorsT | None = None  #: (..., n_snr, m, n)
    effective_rank_gradient: VectorsT | None = None  #: (..., m, n)
    certificate: Certificate | None = None

    def _rows(self) -> show.Rows:
        named = {name: array for name, array in vars(self).items() if name not in ("status", "certificate")}
        matrices = {name for name in named if name in ("precoders", "combiners") or name.endswith("_gradient")}
        extents = {name: show.extent(array) for name, array in named.items() if name not in matrices}
        rows = [(name, text + extents.get(name, "")) for name, text in show.arrays(**named)]
        return [*rows, *show.report(self, MatrixStatus)]


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """When a rejected call is sent again: the server is overloaded, draining or out of reach.

    The n-th pause is drawn from the upper half of [0, min(max_backoff, initial_backoff * 2**(n - 1))], and is never
    shorter than the server's own delay. If a pause would outlast the timeout, or if the server asks for more than
    max_server_delay, the call fails at once. Its `retry_after` holds the delay.
    """

    max_attempts: int = 6  #: calls in all, the first included, those at once at another server not; 1 switches retries off
    initial_backoff: float = 0.05  #: seconds
    max_backoff: float = 2.0  #: seconds
    max_server_delay: float = 300.0  #: seconds

    def pause(self, error: Error, attempt: int, remaining: float | None) -> float | None:
        """Seconds to wait after the `attempt`-th call failed with `error`; None: give up.

        `remaining` are the seconds of the timeout that are left, None without a timeout.
        """
        if isinstance(error, Overloaded):
            # Without RetryInfo it is gRPC itself that speaks: the message is too long, now and for ever.
            worthwhile = error.retry_after is not None
        else:
            worthwhile = isinstance(error, Unavailable)
        if not worthwhile or attempt >= self.max_attempts:
            return None
        backoff = min(self.max_backoff, self.initial_backoff * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        asked = error.retry_after or 0.0
        if asked > self.max_server_delay:
            return None
        pause = max(backoff, asked * random.uniform(1.0, 1.25))  # all clients were refused at once: spread them
        return None if remaining is not None and pause >= remaining else pause


@dataclasses.dataclass(frozen=True)
class Tls:
    """TLS towards a server. A str or a path names a PEM file; bytes are the contents of one."""

    ca: bytes | str | os.PathLike[str] | None = None  #: roots that sign the server's certificate; None: gRPC's default
    cert: bytes | str | os.PathLike[str] | None = None  #: this client's certificate chain, if the server asks for one
    key: bytes | str | os.PathLike[str] | None = None  #: its private key
    server_name: str | None = None  #: the name in the server's certificate, if it differs from the address

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises OSError for a file that cannot be read. Raises ValueError for one of another kind, and for a certificate
        without key or the reverse."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client certificate and its private key go together: give both cert and key")
        return grpc.ssl_channel_credentials(_pem("ca", self.ca, b"CERTIFICATE"), _pem("key", self.key, b"PRIVATE KEY"),
                                            _pem("cert", self.cert, b"CERTIFICATE"))


def _pem(name: str, source: bytes | str | os.PathLike[str] | None, kind: bytes) -> bytes | None:
    """The text of a PEM file. gRPC tells its own log alone that it is none. `kind`: how its first line ends."""
    if source is None:
        return None
    text = source
    if not isinstance(text, bytes):
        with open(text, "rb") as file:
            text = file.read()
    what = "the text" if isinstance(source, bytes) else os.fspath(source)
    if b"-----BEGIN " not in text:
        raise ValueError(f"{name}: {what} is not PEM")
    if kind + b"-----" not in text:
        raise ValueError(f"{name}: {what} has no {kind.decode()}")
    return text


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits above which a server rejects requests."""

    max_values: int  #: largest min(rows, cols)
    max_dimension: int  #: largest rows or cols
    max_matrices: int  #: largest count of one request
    max_message_bytes: int  #: largest request and largest reply, as serialized
    max_inflight_requests: int  #: admitted and without a reply, over all clients
    max_inflight_bytes: int  #: of their operands and results
    max_stream_requests: int  #: requests of one stream without a reply
    max_groups: int = 0  #: batches of different shapes in one request; 0: one
    max_general_order: int = 0  #: largest n of a batch of general eigenproblems; 0: the server takes none
    max_hermitian_order: int = 0  #: of Hermitian ones; max_values where an older server does not say it
    max_large_bytes: int = 0  #: operand, results and working memory of one large matrix; 0: it takes none


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of a server, and its work since the server started."""

    name: str  #: unique on its server, such as "host:0" or "cuda:0"
    backend: str  #: "host" or "cuda"
    instruction_set: str  #: of the kernels, such as "avx512" or "sm_90"
    threads: int  #: of the host that compute; 0 where the device does
    healthy: bool  #: it takes work
    model: str  #: such as "NVIDIA H200"; empty on the host
    uuid: str  #: such as "GPU-5dc8..."; empty on the host
    memory_bytes: int  #: of its own; 0 on the host
    lanes: int  #: batches that it takes at once
    outstanding_batches: int  #: batches that its lanes hold now
    busy_seconds: float  #: time in which at least one lane computed
    uploaded_bytes: int  #: copied to it
    downloaded_bytes: int  #: copied from it
    running_factors: int = 0  #: large matrices that it computes now, beside its batches: 0 or 1
    waiting_factors: int = 0  #: large matrices that are uploaded and wait for it

    def describe(self) -> str:
        """One line, such as "NVIDIA H200, sm_90, 139 GiB"."""
        parts = [self.model, self.instruction_set, f"{self.threads} threads" if self.threads else "",
                 f"{self.memory_bytes >> 30} GiB" if self.memory_bytes else "", "" if self.healthy else "out of service"]
        return ", ".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True, repr=False)
class ServerInfo(show.Shown):
    """A server's version, limits and devices."""

    version: str
    data_types: tuple[str, ...]  #: such as ("f32", "f64", "c64", "c128")
    methods: tuple[str, ...]  #: the choices of `method`, such as ("auto", "bidiagonal", "bisection", "jacobi")
    limits: Limits
    devices: tuple[Device, ...]
    draining: bool  #: it is shutting down and admits nothing

    def _title(self) -> str:
        return f"svdserve {self.version}" + (", shutting down" if self.draining else "")

    def _rows(self) -> show.Rows:
        limits, devices = self.limits, [(device.name, device.describe()) for device in self.devices]
        return [*devices, ("types", ", ".join(self.data_types)), ("methods", ", ".join(self.methods)),
                ("batches", f"min(m, n) to {limits.max_values}, m and n to {limits.max_dimension}, Hermitian to "
                            f"{limits.max_hermitian_order}, general to {limits.max_general_order}"),
                ("messages", f"to {limits.max_message_bytes >> 20} MiB, {limits.max_matrices} matrices"),
                ("large matrices", f"to {limits.max_large_bytes >> 20} MiB each" if limits.max_large_bytes else "none")]


@dataclasses.dataclass(frozen=True)
class DeviceCost:
    """The time that a request takes on one device of a server."""

    device: str  #: its name
    request_seconds: float  #: alone on the idle device
    batch_matrices: int  #: of the largest batch that such requests share
    batch_seconds: float  #: for that batch
    measured: bool  #: False: reckoned from the times of the nearest shape


@dataclasses.dataclass(frozen=True, repr=False)
class CapacityPlan(show.Shown):
    """The servers like the one that was asked, replicas, that serve a load."""

    devices: tuple[DeviceCost, ...]
    core_seconds: float  #: of the host's cores, for one request
    gpu_seconds: float  #: for one request
    utilization: float  #: planned, of what limits a replica
    latency_seconds: float  #: that 99 of 100 requests are predicted not to exceed
    reachable: bool  #: the latency asked for; False: by no number of replicas
    replica_requests_per_second: float  #: that one replica serves
    replicas: int  #: none of them spare
    cores: float  #: of all replicas together
    gpus: float  #: likewise
    replica_cores: int
    replica_gpus: int
    max_inflight_requests: int  #: of each replica, as the rest: values of its flags
    max_inflight_bytes: int
    max_message_bytes: int
    memory_bytes: int  #: without large matrices

    def _title(self) -> str:
        return f"{self.replicas} replicas" + ("" if self.reachable else ", and the latency is not reached")

    def _rows(self) -> show.Rows:
        return [("each serves", f"{self.replica_requests_per_second:.4g} requests/s, 99 of 100 within "
                                f"{self.latency_seconds * 1e3:.3g} ms"),
                ("each has", f"{self.replica_cores} cores, {self.replica_gpus} GPUs, {self.memory_bytes >> 20} MiB"),
                ("needed in all", f"{self.cores:.3g} cores, {self.gpus:.3g} GPUs"),
                ("flags", f"--max-inflight-requests={self.max_inflight_requests} "
                          f"--max-inflight-bytes={self.max_inflight_bytes} "
                          f"--max-message-bytes={self.max_message_bytes}")]


def capacity_plan(message: Any) -> CapacityPlan:
    """CapacityPlan from a PlanCapacityResponse."""
    costs = tuple(DeviceCost(**{f.name: getattr(d, f.name) for f in dataclasses.fields(DeviceCost)})
                  for d in message.devices)
    others = {f.name: getattr(message, f.name) for f in dataclasses.fields(CapacityPlan) if f.name != "devices"}
    return CapacityPlan(devices=costs, **others)


# The least that these limits of a server can be.
_LEAST_LIMITS = dict(max_values=1, max_dimension=1, max_matrices=1, max_message_bytes=1, max_groups=0, max_general_order=0,
                     max_hermitian_order=0, max_large_bytes=0)


def server_info(message: Any) -> ServerInfo:
    """ServerInfo from a GetServerInfoResponse. Raises Internal for limits that no server can have."""
    for name, least in _LEAST_LIMITS.items():
        if (value := getattr(message.limits, name)) < least:
            raise invalid_reply(f"its limits.{name} is {value}, but must be at least {least}")

    def names(numbers: dict[str, int], values: Any) -> tuple[str, ...]:
        by_number = {number: name.lower() for name, number in numbers.items()}
        return tuple(by_number.get(v, f"unknown_{v}") for v in values)

    def fields(of: type, source: Any) -> dict[str, Any]:
        return {f.name: getattr(source, f.name) for f in dataclasses.fields(of)}

    limits = fields(Limits, message.limits)
    limits["max_hermitian_order"] = limits["max_hermitian_order"] or limits["max_values"]
    return ServerInfo(
        version=message.version,
        data_types=names(_proto.DATA_TYPES, message.data_types),
        methods=names(_proto.METHODS, message.methods),
        limits=Limits(**limits),
        devices=tuple(Device(**fields(Device, d)) for d in message.devices),
        draining=message.draining)
