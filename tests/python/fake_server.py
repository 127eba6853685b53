"""A server in the test's own process that speaks the contract and obeys a test.

It does things that the real one does only under load, or never.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Callable

import google_crc32c
import grpc
import numpy as np

from svdserve import _proto

Handler = Callable[[Any, grpc.ServicerContext], Any]
_DTYPES = {1: "<f4", 2: "<f8", 3: "<c8", 4: "<c16", 5: "<f2"}


def decompose(request: Any) -> Any:
    """The right answer."""
    is_eigen = isinstance(request, _proto.EigendecomposeRequest)
    one, response = (eigen_answer, _proto.EigendecomposeResponse) if is_eigen else (answer, _proto.DecomposeResponse)
    if request.groups:
        return response(groups=[one(batch, request.options) for batch in request.groups])
    return one(request.matrices, request.options)


def matrices_of(batch: Any) -> tuple[np.ndarray, Callable[[np.ndarray], bytes]]:
    """The matrices of a batch, and how matrices of its reply are written."""
    column_major = batch.memory_order == 2
    shape = (batch.count, batch.cols, batch.rows) if column_major else (batch.count, batch.rows, batch.cols)
    a = np.frombuffer(batch.data, _DTYPES[batch.data_type]).reshape(shape)
    a = a.astype(np.float32) if a.dtype == np.float16 else a

    def write(x: np.ndarray) -> bytes:
        return (x.swapaxes(1, 2) if column_major else x).tobytes()

    return (a.swapaxes(1, 2) if column_major else a), write


def certify(reply: Any, options: Any, count: int, dtype: Any) -> None:
    """Adds the certificate that was asked for."""
    if options.certificate > _proto.CERTIFICATE_SCOPES["NONE"]:
        reply.certificate.residual = 1e-16
        numbers = np.tile(np.array([1e-16, 2e-16, 3e-16]), (count, 1)).astype(dtype)
        reply.certificate.left_orthogonality, reply.certificate.right_orthogonality = 2e-16, 3e-16
        if options.certificate == _proto.CERTIFICATE_SCOPES["MATRIX"]:
            reply.certificate.each_matrix = numbers.tobytes()


def eigen_answer(batch: Any, options: Any) -> Any:
    """The right answer to one batch of an eigenproblem."""
    a, write = matrices_of(batch)
    if options.problem == _proto.EIGEN_PROBLEMS["GENERAL"]:
        v, w, left = general(a)
    else:
        w, v = np.linalg.eigh(a, "U" if options.triangle == _proto.TRIANGLES["UPPER"] else "L")
    reply = _proto.EigendecomposeResponse(count=batch.count, eigenvalues=w.tobytes(), values_per_matrix=w.shape[1],
                                          method=_proto.METHODS["JACOBI"], device="fake:0")
    if options.vectors > _proto.EIGENVECTORS["NONE"]:
        reply.vectors, reply.vector_columns = write(v), w.shape[1]
    if options.vectors == _proto.EIGENVECTORS["RIGHT_AND_LEFT"]:
        reply.left_vectors_adjoint, reply.left_vector_rows = write(left), w.shape[1]
    certify(reply, options, batch.count, w.real.dtype)
    if options.condition:
        reply.eigenvalue_conditions = (1 / np.abs((left * v.swapaxes(-1, -2)).sum(-1))).astype(w.real.dtype).tobytes()
    return reply


def general(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvectors, eigenvalues and adjoint left eigenvectors: of simple eigenvalues, or this fails."""
    w, v = np.linalg.eig(a)
    inverse = np.linalg.inv(v)
    left = inverse / np.linalg.norm(inverse, axis=-1, keepdims=True)
    return tuple(x.astype(np.result_type(a, np.complex64)) for x in (v, w, left))


def answer(batch: Any, options: Any) -> Any:
    """The right answer to one batch."""
    a, matrices = matrices_of(batch)
    u, s, vh = np.linalg.svd(a, full_matrices=options.vectors == _proto.VECTORS["FULL"])

    wants_values = not options.HasField("mimo") or options.mimo.singular_values
    leading = options.top_k or s.shape[1]
    reply = _proto.DecomposeResponse(count=batch.count)
    if wants_values:
        reply.singular_values, reply.values_per_matrix = s[:, :leading].tobytes(), leading
    if options.vectors > _proto.VECTORS["NONE"]:
        cut = slice(leading if options.top_k else None)
        reply.left_vectors, reply.right_vectors_adjoint = matrices(u[:, :, cut]), matrices(vh[:, cut])
        reply.left_columns, reply.right_columns = u[:, :, cut].shape[2], vh[:, cut].shape[1]
    certify(reply, options, batch.count, s.dtype)
    if options.HasField("mimo"):
        answer_mimo(reply, u, s, vh, options.mimo, matrices)
    return reply


def answer_mimo(reply: Any, u: np.ndarray, s: np.ndarray, vh: np.ndarray, mimo: Any,
                matrices: Callable[[np.ndarray], bytes]) -> None:
    group = mimo.group_size or 1
    snr = 10 ** (np.array(mimo.snr_db) / 10)
    gains = s[:, None, :].astype(np.float64) ** 2 * snr[:, None]
    reply.left_columns, reply.right_columns = mimo.combiner_columns, mimo.precoder_columns
    if mimo.precoder_columns:
        reply.precoders = matrices(vh.conj().swapaxes(1, 2)[:, :, :mimo.precoder_columns])
    if mimo.combiner_columns:
        reply.combiners = matrices(u[:, :, :mimo.combiner_columns])
    if mimo.capacity:
        c = np.log2(1 + gains / vh.shape[2]).sum(-1).reshape(-1, group, len(snr)).sum(1)
        reply.mimo.capacity = c.astype(s.dtype).tobytes()
    if mimo.water_filling:
        of_groups = gains.reshape(-1, group, *gains.shape[1:]).swapaxes(1, 2).reshape(-1, len(snr), group * s.shape[1])
        c = [[water_filling(g, group) for g in of_snr] for of_snr in of_groups]
        reply.mimo.water_filling = np.array(c).astype(s.dtype).tobytes()
    if mimo.stream_snr:
        reply.mimo.stream_snr = (gains / vh.shape[2]).astype(s.dtype).tobytes()
    if mimo.condition_number:
        reply.mimo.condition_number = (s[:, 0] / s[:, -1]).tobytes()
    if mimo.effective_rank:
        p = s / s.sum(1, keepdims=True)
        reply.mimo.effective_rank = np.exp(-(p * np.log(p)).sum(1)).tobytes()
    if mimo.HasField("rank_threshold"):
        reply.mimo.threshold_rank = (s > mimo.rank_threshold * s[:, :1]).sum(1).astype(s.dtype).tobytes()


def water_filling(gains: np.ndarray, power: float) -> float:
    """sum log2(max(1, mu g)) with sum max(0, mu - 1 / g) = power: by the number of streams in use."""
    g = np.sort(gains[gains > 0])[::-1]
    for used in range(len(g), 0, -1):
        mu = (power + (1 / g[:used]).sum()) / used
        if mu * g[used - 1] >= 1:
            return float(np.log2(mu * g[:used]).sum())
    return 0.0


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str = "refused",
           **details: Any) -> None:
    """Ends the call with google.rpc details: fields={path: description}, reason=..., metadata=..., retry_after=seconds,
    request_id=...."""
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
    if "request_id" in details:
        add(_proto.RequestInfo(request_id=details["request_id"]))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


# --- large factors ------------------------------------------------------------------------------

@dataclasses.dataclass
class Large:
    """The fake's behaviour for a large factor, and what it saw of it."""

    chunk_bytes: int = 1 << 20  # what it takes, and sends
    refusals: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of Open, one a call: arguments of refuse()
    progress: list[Any] = dataclasses.field(default_factory=list)  # LargeProgress, sent after Commit
    status: str = "UNSPECIFIED"
    damage: Callable[[Any], Any] = lambda chunk: chunk  # what becomes of each factor chunk; None: it is not sent
    tamper: Callable[[Any], Any] = lambda message: None  # changes each DecomposeLargeResponse but those with chunks
    leave_after: str = ""  # "open", "chunk", "commit" or "results": it ends the call there, with OK
    wait_after: str = ""  # likewise: it waits there until the client is gone
    opens: list[Any] = dataclasses.field(default_factory=list)
    uploads: list[bytes] = dataclasses.field(default_factory=list)
    chunk_sizes: list[int] = dataclasses.field(default_factory=list)
    reached: threading.Event = dataclasses.field(default_factory=threading.Event)  # where it waits
    gone: threading.Event = dataclasses.field(default_factory=threading.Event)  # the client left while it waited

    def serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        first = next(requests).open
        self.opens.append(first)
        if self.refusals:
            refuse(context, **self.refusals.pop(0))
        dtype = np.dtype(_DTYPES[first.data_type])
        operand = first.rows * first.cols * dtype.itemsize
        values, left, right = sizes(first)
        of_values, of_vectors = types(first)
        results = (left * first.rows + right * first.cols) * of_vectors.itemsize + values * of_values.itemsize
        yield self.reply(accepted={"chunk_bytes": self.chunk_bytes, "operand_bytes": operand, "result_bytes": results})
        if self._is_over("open", context):
            return
        data = bytearray()
        for request in requests:
            if request.WhichOneof("step") == "commit":
                break
            chunk = request.chunk
            assert chunk.offset == len(data) and 0 < len(chunk.data) <= self.chunk_bytes
            assert google_crc32c.value(chunk.data) == chunk.crc32c
            data += chunk.data
            self.chunk_sizes.append(len(chunk.data))
            if self._is_over("chunk", context):
                return
        assert len(data) == operand
        self.uploads.append(bytes(data))
        if self._is_over("commit", context):
            return
        for progress in self.progress:
            yield self.reply(progress=progress)
        yield from self._results(first, bytes(data))
        if self._is_over("results", context):
            return
        summary = dict(status=_proto.MATRIX_STATUSES[self.status], method=_proto.METHODS["JACOBI"], device="fake:0",
                       sweeps=7, rotations=900, proper_rotations=800,
                       timing=dict(upload_seconds=1, queue_seconds=2, compute_seconds=3, download_seconds=4),
                       phases=[dict(name="qr", seconds=0.5, flops=1e6)], values=values, left_columns=left,
                       right_rows=right, members=1)
        if first.problem:
            summary.update(rank=values, factor_condition=2.5)
        if first.options.top_k:
            summary.update(method=_proto.METHODS["AUTO"], subspace_steps=4, sweeps=0, rotations=0, proper_rotations=0)
        if first.options.certificate:
            summary["certificate"] = dict(residual=1e-15, left_orthogonality=2e-15, right_orthogonality=3e-15)
        yield self.reply(summary=summary)

    def reply(self, **step: Any) -> Any:
        """A message, after the test has had its say."""
        message = _proto.DecomposeLargeResponse(**step)
        self.tamper(message)
        return message

    def _is_over(self, point: str, context: grpc.ServicerContext) -> bool:
        if self.wait_after == point:
            ended = threading.Event()
            if context.add_callback(ended.set):
                self.reached.set()
                ended.wait(60)
            self.gone.set()
        return point in (self.leave_after, self.wait_after)

    def _results(self, opened: Any, data: bytes) -> Iterator[Any]:
        by_columns = opened.memory_order == _proto.MEMORY_ORDERS["COLUMN_MAJOR"]
        a = np.frombuffer(data, _DTYPES[opened.data_type])
        a = a.reshape(opened.cols, opened.rows).T if by_columns else a.reshape(opened.rows, opened.cols)
        if opened.problem:
            u, s, vh = eigen(a, opened)
        elif opened.signature:
            u, s, vh = hyperbolic(a, np.frombuffer(opened.signature, np.int8))
        else:
            u, s, vh = np.linalg.svd(a, full_matrices=opened.options.vectors == _proto.VECTORS["FULL"])
            if opened.options.top_k:
                u, s, vh = u[:, :opened.options.top_k], s[:opened.options.top_k], vh[:opened.options.top_k]
        factors = {"SINGULAR_VALUES": s}
        if opened.options.vectors != _proto.VECTORS["NONE"]:
            factors.update(LEFT_VECTORS=u, RIGHT_VECTORS_ADJOINT=vh)
        if not sizes(opened)[2]:
            factors.pop("RIGHT_VECTORS_ADJOINT", None)
        for name, factor in factors.items():
            whole = (factor.T if by_columns else factor).tobytes()
            for start in range(0, len(whole), self.chunk_bytes):
                part = whole[start:start + self.chunk_bytes]
                chunk = self.damage(_proto.LargeFactorChunk(factor=_proto.LARGE_FACTORS[name], offset=start, data=part,
                                                            crc32c=google_crc32c.value(part)))
                if chunk is not None:
                    yield _proto.DecomposeLargeResponse(factor_chunk=chunk)


def sizes(opened: Any) -> tuple[int, int, int]:
    """Values, columns of U and rows of V^H."""
    full = opened.options.vectors == _proto.VECTORS["FULL"]
    if opened.problem:
        n = opened.rows
        return n, 0 if opened.options.vectors == _proto.VECTORS["NONE"] else n, n if full else 0
    k = opened.options.top_k or min(opened.rows, opened.cols)
    if opened.options.vectors == _proto.VECTORS["NONE"]:
        return k, 0, 0
    return k, opened.rows if full else k, opened.cols if full else k


def types(opened: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The types of the values and of the vectors."""
    element = np.dtype(_DTYPES[opened.data_type])
    if opened.problem == _proto.LARGE_PROBLEMS["GENERAL"]:
        return (np.result_type(element, np.complex64),) * 2
    return np.zeros(0, element).real.dtype, element


def eigen(a: np.ndarray, opened: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvectors, eigenvalues, and nothing or adjoint left eigenvectors."""
    if opened.problem == _proto.LARGE_PROBLEMS["GENERAL"]:
        return general(a)
    if opened.problem == _proto.LARGE_PROBLEMS["HERMITIAN_FACTOR"]:
        a = (a * np.frombuffer(opened.signature, np.int8)) @ a.conj().T
    upper = opened.triangle == _proto.TRIANGLES["UPPER"]
    w, v = np.linalg.eigh(a, "U" if upper else "L")
    return v, w, v[:0]


def hyperbolic(g: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G = U S V^H with V^H J V = J from the eigenvectors of G J G^H: good enough for well-conditioned small G."""
    values, vectors = np.linalg.eigh((g * j) @ g.conj().T)
    order = np.empty(len(j), int)
    order[j > 0] = np.argsort(-values)[:(j > 0).sum()]  # the largest eigenvalues, descending, to the columns of sign +1
    order[j < 0] = np.argsort(values)[:(j < 0).sum()]
    s = np.sqrt(np.abs(values[order])).astype(g.real.dtype)
    u = vectors[:, order].astype(g.dtype)
    return u, s, ((u.conj().T @ g) / s[:, None]).astype(g.dtype)


class FakeServer:
    """A fake server. Its attributes:

    address: of its port.
    requests: the requests that it received.
    peers: the connections that they came over.
    announced: the sizes that their metadata announced.
    refuse_unread: ends a call before its request is read, given the context.
    infos: the number of requests for its limits.
    handler: replies to a request.
    large: replies to large matrices.
    """

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[Any] = []
        self.peers: list[str] = []
        self.announced: list[str | None] = []
        self.refuse_unread: Callable[[grpc.ServicerContext], Any] = lambda context: None
        self.infos = 0
        self.limits = dict(max_values=128, max_dimension=16384, max_matrices=1 << 24, max_message_bytes=64 << 20,
                           max_groups=4096, max_large_bytes=1 << 30)
        self.large = Large()
        self.handler: Handler = lambda request, context: decompose(request)
        self._lock = threading.Lock()

    def on_decompose(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        self.refuse_unread(context)
        request = next(requests)
        with self._lock:
            self.requests.append(request)
            self.peers.append(context.peer())
            self.announced.append(dict(context.invocation_metadata()).get("svdserve-request-bytes"))
        return self.handler(request, context)

    def on_info(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.infos += 1
        return _proto.GetServerInfoResponse(version="0", limits=self.limits)


@contextlib.contextmanager
def running() -> Iterator[FakeServer]:
    fake = FakeServer()
    server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.max_receive_message_length", -1),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_proto.SERVICE, {
        # As a stream of one request, which is the same on the wire: so that a call can end before it is read.
        "Decompose": grpc.stream_unary_rpc_method_handler(
            fake.on_decompose, _proto.DecomposeRequest.FromString, _proto.DecomposeResponse.SerializeToString),
        "Eigendecompose": grpc.stream_unary_rpc_method_handler(
            fake.on_decompose, _proto.EigendecomposeRequest.FromString, _proto.EigendecomposeResponse.SerializeToString),
        "DecomposeLarge": grpc.stream_stream_rpc_method_handler(
            lambda requests, context: fake.large.serve(requests, context), _proto.DecomposeLargeRequest.FromString,
            _proto.DecomposeLargeResponse.SerializeToString),
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(
            fake.on_info, _proto.GetServerInfoRequest.FromString, _proto.GetServerInfoResponse.SerializeToString)}),))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(0).wait()
