"""Requests and answers as bytes: what is sent is what protobuf would send, and the operand's memory is not copied."""

import re
from pathlib import Path

import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus, _codec, _proto
from svdserve._codec import PieceSize
from svdserve._query import MIMO_NUMBERS, Mimo, Query
from svdserve.values import Limits

OPTIONS = Query().encode()


def limits(max_message_bytes=64 << 20, max_matrices=1 << 24, max_inflight_bytes=1 << 32):
    return Limits(32, 16384, max_matrices, max_message_bytes, 1, max_inflight_bytes, 1, 4096)


def only_request(a, options=OPTIONS):
    operand = _codec.Operand(a)
    (message,) = _codec.messages([(operand, None)], Query(), limits(), PieceSize(1 << 30))
    return message.request(options)


@pytest.mark.parametrize("count", [1, 3, 9, 40, 2000])  # lengths of one, two and three bytes
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_a_request_is_what_protobuf_writes(count, dtype, rng):
    a = rng.standard_normal((count, 3, 2)).astype(dtype)
    sent = only_request(a, Query("jacobi", 1e-3, 7).encode()).serialize()
    request = _proto.DecomposeRequest.FromString(sent)
    batch = request.matrices
    assert (batch.rows, batch.cols, batch.count) == (3, 2, count)
    assert batch.memory_order == _proto.MEMORY_ORDERS["ROW_MAJOR"]
    assert batch.data_type == {"f4": 1, "f8": 2, "c8": 3, "c16": 4}[dtype]
    assert batch.data == a.tobytes()
    assert (request.options.method, request.options.tolerance, request.options.max_sweeps) == (4, 1e-3, 7)
    assert len(sent) == request.ByteSize()


def test_numbers_of_options_may_be_arrays_without_dimensions(rng):
    given = Query("jacobi", np.array(1e-3), np.array(7), vectors="thin", top_k=np.array(2))
    wanted = Query("jacobi", 1e-3, 7, vectors="thin", top_k=2)
    assert given.encode() == wanted.encode()
    operand = _codec.Operand(rng.standard_normal((5, 4, 3)))
    assert operand.sizes(given) == operand.sizes(wanted)  # which is found by the query's hash


LAYOUTS = {
    "C": (lambda a: a, "ROW_MAJOR"),
    "each matrix Fortran-ordered": (lambda a: np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2),
                                    "COLUMN_MAJOR"),
    "read-only": (lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape), "ROW_MAJOR"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contiguous_matrices_are_sent_from_where_they_are(layout, rng):
    change, order = LAYOUTS[layout]
    a = change(rng.standard_normal((2, 5, 3, 4)))
    request = only_request(a)
    assert np.shares_memory(request.parts[-1], a)
    batch = _proto.DecomposeRequest.FromString(request.serialize()).matrices
    assert batch.memory_order == _proto.MEMORY_ORDERS[order]
    assert (batch.rows, batch.cols, batch.count) == (3, 4, 10)


@pytest.mark.parametrize("make", [
    pytest.param(lambda a: np.asfortranarray(a), id="Fortran-ordered stack"),
    pytest.param(lambda a: a[::-1, ::2], id="negative and wide strides"),
    pytest.param(lambda a: np.broadcast_to(a[0], a.shape), id="broadcast"),
    pytest.param(lambda a: a.astype(">f8"), id="big-endian"),
    pytest.param(lambda a: a[:, :, ::-1], id="reversed columns"),
])
def test_other_layouts_are_brought_in_order(make, rng):
    a = make(rng.standard_normal((6, 4, 3)))
    batch = _proto.DecomposeRequest.FromString(only_request(a).serialize()).matrices
    assert batch.memory_order == _proto.MEMORY_ORDERS["ROW_MAJOR"]
    np.testing.assert_array_equal(np.frombuffer(batch.data, "<f8").reshape(a.shape), a)


def test_one_fortran_ordered_matrix_is_not_copied(rng):
    a = np.asfortranarray(rng.standard_normal((4, 3)))
    assert np.shares_memory(only_request(a).parts[-1], a)


@pytest.mark.parametrize("message, piece, most, longest", [
    pytest.param(64 << 20, 1 << 30, 1 << 24, 10_000, id="all at once"),
    pytest.param(64 << 20, 16 * 1000, 1 << 24, 1000, id="the wanted size"),
    pytest.param(256 + 16 * 300, 1 << 30, 1 << 24, 73, id="the answer's size"),  # (5056 - 4096) / 13
    pytest.param(256 + 16 * 5000, 1 << 30, 1 << 24, 5000, id="the request's size"),
    pytest.param(64 << 20, 1 << 30, 3000, 2500, id="matrices of a request"),
    pytest.param(64 << 20, 1, 1 << 24, 1, id="never less than one"),
])
def test_pieces_keep_to_every_limit(message, piece, most, longest):
    operand = _codec.Operand(np.zeros((10_000, 2, 2), np.float32))  # 16 bytes to send, 2 * 4 + 5 to receive
    cut = list(operand.pieces(limits(message, most), PieceSize(piece)))
    assert [p.start for p in cut[1:]] == [p.stop for p in cut[:-1]]
    assert (cut[0].start, cut[-1].stop) == (0, 10_000)
    sizes = {p.stop - p.start for p in cut}
    assert max(sizes) == longest and max(sizes) - min(sizes) <= 1


def test_a_matrix_beyond_the_message_limit_is_refused_by_name():
    operand = _codec.Operand(np.zeros((1, 40, 40)))
    with pytest.raises(svdserve.InvalidArgument) as refused:
        operand.pieces(limits(max_message_bytes=8192), PieceSize(1 << 20))
    assert refused.value.field == "matrices.data"


def test_a_group_beyond_the_servers_matrices_is_named():
    operand = _codec.Operand(np.zeros((12, 2, 2)))
    with pytest.raises(svdserve.InvalidArgument, match="at most 5 matrices") as refused:
        operand.pieces(limits(max_matrices=5), PieceSize(1 << 20), Query(mimo=Mimo(CAPACITY, snr_db=(10.0,), group_size=6)))
    assert refused.value.field == "options.mimo.group_size"


def response(values, **fields):
    return _proto.DecomposeResponse(singular_values=np.asarray(values, "<f8").tobytes(), **fields)


def test_without_a_copy_an_answer_is_a_view_of_the_bytes_received():
    message = response([[3, 1], [2, 0]], values_per_matrix=2, count=2, exception_indices=[1], exception_statuses=[3])
    received = message.SerializeToString()
    parsed = _codec.Response.parse(received)
    operand = _codec.Operand(np.zeros((2, 2, 2)))
    result = _codec.Result(operand, copy=False)
    result.put(_codec.Piece(0, 2), parsed)
    assert np.shares_memory(result.values(), np.frombuffer(received, "u1"))
    assert result.values().tolist() == [[3, 1], [2, 0]]
    assert result.statuses().tolist() == [MatrixStatus.OK, MatrixStatus.OUT_OF_RANGE]


def test_an_answer_with_its_fields_in_another_order_is_understood():
    one = response([1, 0]).SerializeToString()
    two = _proto.DecomposeResponse(values_per_matrix=2, count=1).SerializeToString()
    parsed = _codec.Response.parse(two + one)
    assert (bytes(parsed.planes["singular_values"]), parsed.rest.count) == (np.array([1.0, 0]).tobytes(), 1)


@pytest.mark.parametrize("bad", [b"\x0a", b"\x0a\xff", b"\x0a\x05abc", b"\x0a" + b"\xff" * 11, b"\x07"])
def test_broken_answers_are_refused(bad):
    with pytest.raises(_proto.DecodeError):
        _codec.Response.parse(bad)


@pytest.mark.parametrize("answer", [
    response([1.0, 0.0], values_per_matrix=2, count=2),
    response([1.0], values_per_matrix=2, count=1),
    response([1.0, 0.0], values_per_matrix=1, count=2),
    response([1.0, 0.0], values_per_matrix=2, count=1, exception_indices=[1], exception_statuses=[1]),
    response([1.0, 0.0], values_per_matrix=2, count=1, exception_indices=[0]),
])
def test_an_answer_that_does_not_fit_the_question_is_an_error(answer):
    result = _codec.Result(_codec.Operand(np.zeros((1, 2, 2))))
    with pytest.raises(svdserve.Error):
        result.put(_codec.Piece(0, 1), _codec.Response.parse(answer.SerializeToString()))


def test_the_statuses_are_those_of_the_contract():
    named = {s.name: s.value for s in MatrixStatus if s not in (MatrixStatus.OK, MatrixStatus.UNKNOWN)}
    assert named == {n: v for n, v in _proto.MATRIX_STATUSES.items() if v}


# --- vectors, answers, groups --------------------------------------------------------------------

CAPACITY = frozenset(["capacity"])
EVERYTHING = Query(fix_phases=True, certificate="matrix", mimo=Mimo(
    frozenset(MIMO_NUMBERS), rank_threshold=0.5, snr_db=(0.0, 10.0, 20.0), group_size=2, precoder_columns=2,
    combiner_columns=1, values=True))


def test_options_are_what_protobuf_writes():
    options = _proto.DecomposeRequest.FromString(EVERYTHING.encode()).options
    assert options.fix_phases and options.certificate == _proto.CERTIFICATE_SCOPES["MATRIX"]
    mimo = options.mimo
    assert (list(mimo.snr_db), mimo.group_size, mimo.precoder_columns, mimo.combiner_columns) == ([0, 10, 20], 2, 2, 1)
    assert mimo.HasField("rank_threshold") and mimo.rank_threshold == 0.5 and mimo.singular_values
    plain = _proto.DecomposeRequest.FromString(Query(vectors="full", top_k=3).encode()).options
    assert not plain.HasField("mimo") and (plain.vectors, plain.top_k) == (_proto.VECTORS["FULL"], 3)


@pytest.mark.parametrize("copy", [True, False])
def test_planes_land_where_their_fields_are(copy):
    """Numbers that tell from which field they came."""
    a = np.zeros((4, 3, 5), np.complex64)
    operand = _codec.Operand(a)
    planes = operand.planes(EVERYTHING)
    marks = {plane.name: index + 1 for index, plane in enumerate(planes)}
    reply = _proto.DecomposeResponse(count=4, values_per_matrix=3, left_columns=1, right_columns=2)
    for plane in planes:
        units = 2 if plane.per_group else 4
        content = np.full((units, *plane.shape), marks[plane.name], plane.dtype).tobytes()
        owner = next(m for m in (reply, reply.mimo, reply.certificate) if plane.name in m.DESCRIPTOR.fields_by_name)
        setattr(owner, plane.name, content)
    reply.certificate.residual = 0.25
    result = _codec.Result(operand, EVERYTHING, copy=copy)
    result.put(_codec.Piece(0, 4), _codec.Response.parse(reply.SerializeToString()))
    shapes = dict(singular_values=(4, 3), combiners=(4, 3, 1), precoders=(4, 5, 2), capacity=(2, 3), water_filling=(2, 3),
                  stream_snr=(4, 3, 3), each_matrix=(4, 3))
    assert set(shapes) | set(MIMO_NUMBERS) == set(marks)
    for name in marks:
        array = result.array(name)
        assert array.shape == shapes.get(name, (4,)) and (array == marks[name]).all() and array.flags.writeable == copy
        assert array.dtype == (np.complex64 if name in ("precoders", "combiners") else np.float32)
    assert result.certificate().residual == 0.25


# A GPU takes as long for one large matrix as for many: so a piece has many of them.
@pytest.mark.parametrize("k, count, servers, longest", [
    (2, 1 << 18, 1, 1 << 17),  # 4 MiB
    (128, 256, 1, 32),  # the same
    (256, 256, 1, 16),  # 8 MiB
    (512, 64, 1, 16),  # 32 MiB
    (512, 3, 1, 3),
    (512, 64, 4, 4),
    (512, 64, 100, 2),  # 4 MiB
])
def test_pieces_have_several_large_matrices(k, count, servers, longest):
    operand = _codec.Operand(np.broadcast_to(np.zeros((k, k)), (count, k, k)))
    size = PieceSize.of_servers(servers)
    assert max(p.stop - p.start for p in operand.pieces(limits(), size)) == longest
    alone = [_codec.Operand(np.zeros((1, k, k)))] * min(count, 100)
    sent = _codec.messages([(one, _codec.Result(one)) for one in alone], Query(), limits(), size)
    each = 8 * k * k + 512
    assert len(sent) == -(-len(alone) // (size.wished_bytes(each, limits()) // each))


def test_pieces_leave_room_at_the_server():
    operand = _codec.Operand(np.broadcast_to(np.zeros((512, 512)), (64, 512, 512)))
    cut = operand.pieces(limits(max_inflight_bytes=72 << 20), PieceSize.of_servers(1))
    assert max(p.stop - p.start for p in cut) == 4


def test_pieces_hold_whole_groups():
    operand = _codec.Operand(np.zeros((100, 2, 2)))
    query = Query(mimo=Mimo(CAPACITY, snr_db=(0.0,), group_size=20))
    cut = operand.pieces(limits(), PieceSize(32 * 45), query)
    assert [(p.start, p.stop) for p in cut] == [(0, 20), (20, 60), (60, 100)]


def test_pieces_are_cut_by_the_larger_of_request_and_response():
    operand = _codec.Operand(np.zeros((1000, 1, 8), np.float32))  # 32 bytes to send; 4 + 4 + 256 to receive
    most = max(p.stop - p.start for p in operand.pieces(limits(), PieceSize(1 << 14), Query(vectors="full")))
    assert most * (1 + 1 + 64) * 4 <= 1 << 14
    tight = operand.pieces(limits(max_message_bytes=1 << 14), PieceSize(1 << 30), Query(vectors="full"))
    assert max(p.stop - p.start for p in tight) * (66 * 4 + 5) <= (1 << 14) - 4096


def test_small_neighbours_share_a_message_as_groups():
    stacks = [np.zeros((n, 2, 3)) for n in (1, 2, 3)] + [np.zeros((0, 2, 2)), np.zeros((5000, 3, 3)), np.ones((1, 1, 1))]
    pairs = [(operand, _codec.Result(operand)) for operand in map(_codec.Operand, stacks)]
    cut = _codec.messages(pairs, Query(), limits(), PieceSize(64 << 10))
    sent = [_proto.DecomposeRequest.FromString(m.request(OPTIONS).serialize()) for m in cut]
    batches = [list(r.groups) or [r.matrices] for r in sent]
    assert [b.count for b in batches[0][:3]] == [1, 2, 3] and len(batches) > 1
    assert [b.cols for r in batches for b in r] == sorted((b.cols for r in batches for b in r), key=[3, 1].index)
    assert sum(b.count for r in batches for b in r if b.rows == 3) == 5000
    assert all(sum(len(b.data) for b in r) <= 64 << 10 for r in batches)
    assert (batches[-1][-1].rows, batches[-1][-1].count) == (1, 1)
    none_at_once = _codec.messages(pairs, Query(), Limits(32, 16384, 1 << 24, 64 << 20, 1, 1, 1), PieceSize(64 << 10))
    assert not any(m.request(OPTIONS).serialize() and len(m.pieces) > 1 for m in none_at_once)


def test_overheads_are_those_of_the_server():
    source = (Path(__file__).resolve().parents[2] / "wire" / "limits.h").read_text()
    figures = {name: int(value) for name, value in re.findall(r"kMessageBytes(\w+) = (\d+);", source)}
    assert figures == {"PerMatrix": _codec._STATUS_BYTES, "PerGroup": _codec._GROUP_OVERHEAD,
                       "Fixed": _codec._RESPONSE_OVERHEAD}
