"""One large matrix by DecomposeLarge: the messages sent, and the results taken from replies. No gRPC here.

The operand goes out in chunks that are joined from the array's own memory, by a copy each. The results are copied from
the bytes received to their arrays. Beside the operand and its results a call needs a few chunks of memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np

from . import _proto
from ._codec import Operand, Request, Result, fields, length_delimited, varint
from ._display.progress import Estimate, Teller
from ._query import Query
from .errors import Error, damaged, invalid_reply
from .values import Certificate, LargeSummary, MatrixStatus, Phase, Progress, named_statuses

_LONGEST = 1e9  # seconds that a server may predict
CHUNK_BYTES = 1 << 20  # of an upload, where the server takes as much

# Field numbers of the contract that this file writes and reads itself.
_REQUEST_CHUNK = length_delimited(2)  # DecomposeLargeRequest.chunk
_CHUNK_OFFSET = bytes([1 << 3])  # LargeChunk.offset, a varint
_CHUNK_DATA = length_delimited(2)  # LargeChunk.data
_CHUNK_CRC = bytes([3 << 3 | 5])  # LargeChunk.crc32c, a fixed32
_RESPONSE_FACTOR_CHUNK, _FACTOR_CHUNK_DATA = 3, 3

# Number of a LargeFactor -> field of the unary answer that is the same thing, by which results are named here.
_PLANES = {_proto.LARGE_FACTORS["SINGULAR_VALUES"]: "singular_values",
           _proto.LARGE_FACTORS["LEFT_VECTORS"]: "left_vectors",
           _proto.LARGE_FACTORS["RIGHT_VECTORS_ADJOINT"]: "right_vectors_adjoint"}
_STAGES = {number: name.lower() for name, number in _proto.LARGE_STAGES.items() if number}


@dataclasses.dataclass(frozen=True)
class Reply:
    """One message received. `data` is a view of a factor chunk's bytes, `message` has everything else."""

    step: str
    message: Any
    data: memoryview = memoryview(b"")

    @staticmethod
    def parse(serialized: bytes) -> Reply:
        """Raises DecodeError if the bytes are not a DecomposeLargeResponse."""
        for number, content, _ in fields(memoryview(serialized)):
            if number == _RESPONSE_FACTOR_CHUNK and content is not None:
                return Reply._factor_chunk(content)
        message = _proto.DecomposeLargeResponse.FromString(serialized)
        step = message.WhichOneof("step") or ""
        return Reply(step, getattr(message, step) if step else message)

    @staticmethod
    def _factor_chunk(serialized: memoryview) -> Reply:
        data, rest = memoryview(b""), []
        for number, content, whole in fields(serialized):
            if number == _FACTOR_CHUNK_DATA and content is not None:
                data = content
            else:
                rest.append(whole)
        return Reply("factor_chunk", _proto.LargeFactorChunk.FromString(b"".join(rest)), data)


def _parts(matrix: np.ndarray, dtype: np.dtype[Any], limit: int) -> Iterator[np.ndarray]:
    """The elements of a two-dimensional array in row-major order, in vectors of at most `limit` bytes: views where the
    array lies so already, else copies."""
    step = max(1, limit // dtype.itemsize)
    rows, cols = matrix.shape
    if matrix.flags.c_contiguous and matrix.dtype == dtype:
        matrix, rows, cols = matrix.reshape(1, -1), 1, rows * cols
    if cols > step:
        for row in matrix:
            for start in range(0, cols, step):
                yield np.ascontiguousarray(row[start:start + step], dtype)
    else:
        for start in range(0, rows, step // cols):
            yield np.ascontiguousarray(matrix[start:start + step // cols], dtype).reshape(-1)


def _chunk(offset: int, data: np.ndarray) -> Request:
    """A DecomposeLargeRequest with a chunk."""
    raw = data.view(np.uint8)
    head = (_CHUNK_OFFSET + varint(offset) if offset else b"") + _CHUNK_DATA + varint(raw.nbytes)
    tail = _CHUNK_CRC + google_crc32c.value(raw).to_bytes(4, "little")
    return Request((_REQUEST_CHUNK + varint(len(head) + raw.nbytes + len(tail)) + head, raw, tail))


class Factor:
    """Matrix `index` of an operand on its way through one call after the other, until one succeeds.

    One thread may take chunks() while another hands over the replies. Either calls `teller`, never both at once.
    `array` is the name of the operand in errors if it is one of several.
    """

    def __init__(self, operand: Operand, index: int, query: Query, result: Result,
                 teller: Teller | None, array: str = "") -> None:
        self._operand = operand
        self._index = index
        self._array = array
        self._query = query
        self._result = result
        self._teller = teller
        self._progress = Progress("upload", matrix=index)
        self._telling = threading.Lock()
        self._begin = time.monotonic()
        self._bytes = operand.large_bytes  # with the starting vectors
        self._token = b""
        self.survives = False  # a server has given a token: matrices outlive it
        self.is_sent = False  # the whole operand, and commit
        self.restart()
        results = sum(target.nbytes for target in self._targets.values())
        self.bytes = self._bytes + results
        self._estimate = Estimate(self._bytes, results)

    def restart(self) -> None:
        """Prepares another call, which goes on with the matrix where the one before has a token."""
        self._token = self.token
        self.is_resumed = self.is_sent = bool(self._token)
        self.accepted = False
        self._chunk_bytes = CHUNK_BYTES
        self._targets = {plane.name: self._result.memory(plane.name, self._index)
                         for plane in self._operand.planes(self._query) if plane.name in _PLANES.values()}
        self._received = dict.fromkeys(self._targets, 0)
        self._summary: LargeSummary | None = None

    @property
    def token(self) -> bytes:
        """To go on with the matrix in another call; empty: there is none, or the server has not got all of the matrix."""
        return self._token if self.is_sent else b""

    def forget_token(self) -> None:
        """The server does not know it."""
        self._token = b""

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Has an Error say which matrix it is about where there are several."""
        try:
            yield
        except Error as error:
            if place := self._place():
                error._reword(f"{place}: {error.message}")
            raise

    def _place(self) -> str:
        place = [int(i) for i in np.unravel_index(self._index, self._operand.batch_shape)]
        matrix = "matrix [" + ", ".join(map(str, place)) + "]" if place else ""
        return " of ".join(filter(None, (matrix, self._array)))

    def open(self) -> Request:
        """The first message."""
        operand = self._operand
        opened = _proto.LargeOpen(data_type=operand.large_type, memory_order=operand.memory_order, rows=operand.rows,
                                  cols=operand.cols, options=self._query.large_options(),
                                  signature=self._query.signature,
                                  problem=_proto.LARGE_PROBLEMS[(self._query.eigenproblem or "unspecified").upper()],
                                  triangle=_proto.TRIANGLES[self._query.triangle.upper()],
                                  starting_vectors=self._query.starting_vectors, resume=self._token)
        return Request((_proto.DecomposeLargeRequest(open=opened).SerializeToString(),))

    def chunks(self) -> Iterator[Request]:
        """The messages after the server's acceptance: the operand and commit. None for a matrix that is resumed."""
        if self.is_resumed:
            return
        offset = 0
        for matrix, dtype in self._operand.large_parts(self._index):
            for part in _parts(matrix, dtype, self._chunk_bytes):
                yield _chunk(offset, part)  # asked for the next one, the caller has sent it
                offset += part.nbytes
                self._tell(stage="upload", fraction=offset / self._bytes)
        self.is_sent = True
        yield Request((_proto.DecomposeLargeRequest(commit=_proto.LargeCommit()).SerializeToString(),))

    def take(self, reply: Reply) -> None:
        """Takes a reply. Raises Internal if the server must not send it, Error for a damaged chunk."""
        if not self.accepted and reply.step != "accepted":
            raise invalid_reply("it does not begin with accepted")
        if self._summary is not None:
            raise invalid_reply("it goes on after the summary")
        if reply.step in ("factor_chunk", "summary") and not self.is_sent:
            raise invalid_reply("it has results of an operand that was not sent completely")
        {"accepted": self._accept, "progress": self._take_progress, "factor_chunk": self._take_chunk,
         "summary": self._take_summary}.get(reply.step, lambda _: None)(reply)

    def finish(self) -> None:
        """Delivers the report on the matrix. Raises Internal if something is missing."""
        for name, target in self._targets.items():
            if self._received[name] != target.nbytes:
                raise invalid_reply(f"it ends after {self._received[name]} of {target.nbytes} bytes of {name}")
        if self._summary is None:
            raise invalid_reply("it ends without a summary")
        self._result.put_large(self._index, self._summary)

    def _accept(self, reply: Reply) -> None:
        if self.accepted:
            raise invalid_reply("it accepts the matrix twice")
        self.accepted = True
        self._token = reply.message.resume
        self.survives = self.survives or bool(self._token)
        self._estimate.predicted = min(max(0.0, reply.message.predicted_seconds), _LONGEST)
        if reply.message.chunk_bytes < self._operand.element_type.itemsize:
            raise invalid_reply(f"it allows chunks of {reply.message.chunk_bytes} bytes, less than an element")
        sizes = reply.message.operand_bytes, reply.message.result_bytes
        expected = self._bytes, sum(target.nbytes for target in self._targets.values())
        if sizes != expected:
            raise invalid_reply(f"it accepts {sizes[0]} bytes with results of {sizes[1]}, but the matrix has {expected[0]} "
                                f"with results of {expected[1]}")
        self._chunk_bytes = min(CHUNK_BYTES, reply.message.chunk_bytes)

    def _take_progress(self, reply: Reply) -> None:
        p = reply.message
        stage = _STAGES.get(p.stage, "unknown")
        if stage != "upload":  # of that this side knows more
            fraction = min(p.fraction, 1.0) if p.fraction > 0 else 0.0  # 0 for NaN, too
            self._tell(stage=stage, fraction=fraction, sweep=p.sweep, rotations=p.rotations,
                       proper_rotations=p.proper_rotations, off_diagonal=p.off_diagonal, device=p.device)

    def _take_chunk(self, reply: Reply) -> None:
        name = _PLANES.get(reply.message.factor, "")
        if name not in self._targets:
            raise invalid_reply(f"it has a result that was not asked for: {name or reply.message.factor}")
        start, target = reply.message.offset, self._targets[name]
        stop = start + len(reply.data)
        if start != self._received[name] or not start < stop <= target.nbytes:
            raise invalid_reply(f"it has bytes {start} .. {stop} of {name}, {self._received[name]} .. {target.nbytes} "
                                "were to come")
        data = np.frombuffer(reply.data, np.uint8)
        if google_crc32c.value(data) != reply.message.crc32c:
            raise damaged(f"the CRC-32C of bytes {start} .. {stop} of {name} is wrong; send the matrix again")
        target[start:stop] = data
        self._received[name] = stop
        self._tell(stage="download", fraction=sum(self._received.values()) /
                   sum(target.nbytes for target in self._targets.values()))

    def _take_summary(self, reply: Reply) -> None:
        s = reply.message
        columns = self._query.columns(self._operand.rows, self._operand.cols)
        values = self._query.values_of(self._operand.rows, self._operand.cols)
        if (s.values, s.left_columns, s.right_rows) != (values, *columns):
            raise invalid_reply(f"its summary has {s.values} values, {s.left_columns} columns of U and {s.right_rows} "
                                f"rows of V^H; {values}, {columns[0]} and {columns[1]} were asked for")
        if not 0 <= s.rank <= values:
            raise invalid_reply(f"its summary has the rank {s.rank}")
        if s.subspace_steps < 0:
            raise invalid_reply(f"its summary counts {s.subspace_steps} steps of a subspace")
        if s.members < 0:
            raise invalid_reply(f"its summary counts {s.members} devices")
        if s.sweeps < 0 or not 0 <= s.proper_rotations <= s.rotations:
            raise invalid_reply(f"its summary counts {s.sweeps} sweeps and {s.rotations} rotations, "
                                f"{s.proper_rotations} of them proper")
        if s.status in (MatrixStatus.NON_FINITE, MatrixStatus.BY_QR, MatrixStatus.NEAR_DEFECTIVE):
            raise invalid_reply("its summary has the status of a small matrix")
        if s.HasField("certificate") != (self._query.certificate != "none"):
            raise invalid_reply("its summary has no certificate" if self._query.certificate != "none" else
                                "its summary has a certificate, none was asked for")
        self._summary = summary(s)

    def _tell(self, **news: Any) -> None:
        if self._teller is None:
            return
        with self._telling:
            if news["stage"] == "upload" and self._progress.stage != "upload":
                return  # the server was faster to say that it goes on
            self._progress = self._estimate(dataclasses.replace(self._progress, **news,
                                                                elapsed_seconds=time.monotonic() - self._begin))
            self._teller(self._progress, id(self))


def summary(message: Any) -> LargeSummary:
    """LargeSummary of the package from that of the contract."""
    timing, methods = message.timing, {number: name.lower() for name, number in _proto.METHODS.items()}
    return LargeSummary(
        status=int(named_statuses(message.status)) if message.status else MatrixStatus.OK,
        method=methods.get(message.method, f"unknown_{message.method}"), device=message.device,
        sweeps=message.sweeps, rotations=message.rotations, proper_rotations=message.proper_rotations,
        upload_seconds=timing.upload_seconds, queue_seconds=timing.queue_seconds,
        compute_seconds=timing.compute_seconds, download_seconds=timing.download_seconds,
        phases=tuple(Phase(p.name, p.seconds, p.flops) for p in message.phases),
        certificate=Certificate(message.certificate.residual, message.certificate.left_orthogonality,
                                message.certificate.right_orthogonality) if message.HasField("certificate") else None,
        rank=message.rank, factor_condition=message.factor_condition or None, subspace_steps=message.subspace_steps,
        members=message.members)


#: The largest min(m, n) of a single matrix that is computed in a few milliseconds, progress or not.
_NO_PROGRESS = 128


def is_large(operand: Operand, query: Query, limits: Any, *, tells: bool = False) -> bool:
    """Whether the matrices of an operand go by DecomposeLarge, one a call.

    So do matrices that do not fit a message, such as a tall one with its full basis. So does a single matrix with options
    that only large ones have. So does one that takes long enough for its progress, where that is told (`tells`), unless
    it has options that only small ones have.
    """
    if query.is_for_large:
        return True
    if limits.max_large_bytes <= 0:
        return False
    if query.eigenproblem == "general" and operand.rows > limits.max_general_order:
        return True
    if query.eigenproblem == "hermitian" and operand.rows > limits.max_hermitian_order:
        return True
    if operand.values_per_matrix > limits.max_values or max(operand.rows, operand.cols) > limits.max_dimension:
        return True
    chosen = query.pivot_strategy is not None or query.block_variant is not None
    only_small = query.fix_phases or query.mimo is not None or query.condition or query.starting_vectors
    shows = tells and operand.values_per_matrix > _NO_PROGRESS and not only_small and not query.is_for_small
    if not operand.batch_shape and (chosen or shows):
        return True
    return not only_small and not operand.empty and not operand.fits_a_message(limits, query)
