"""Requests and answers as bytes: what is sent is what protobuf would send, and the operand's memory is not copied."""

import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus, _codec, _proto
from svdserve.values import Limits

OPTIONS = _codec.encode_options("auto", None, None)


def limits(max_message_bytes=64 << 20, max_matrices=1 << 24):
    return Limits(32, 16384, max_matrices, max_message_bytes, 1, 1, 1)


def only_request(a, options=OPTIONS):
    operand = _codec.Operand(a)
    pieces = list(operand.pieces(limits(), 1 << 30))
    assert len(pieces) == 1
    return operand.request(pieces[0], options)


@pytest.mark.parametrize("count", [1, 3, 9, 40, 2000])  # lengths of one, two and three bytes
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_a_request_is_what_protobuf_writes(count, dtype, rng):
    a = rng.standard_normal((count, 3, 2)).astype(dtype)
    sent = only_request(a, _codec.encode_options("jacobi", 1e-3, 7)).serialize()
    request = _proto.DecomposeRequest.FromString(sent)
    batch = request.matrices
    assert (batch.rows, batch.cols, batch.count) == (3, 2, count)
    assert batch.memory_order == _proto.MEMORY_ORDERS["ROW_MAJOR"]
    assert batch.data_type == {"f4": 1, "f8": 2, "c8": 3, "c16": 4}[dtype]
    assert batch.data == a.tobytes()
    assert (request.options.method, request.options.tolerance, request.options.max_sweeps) == (4, 1e-3, 7)
    assert len(sent) == request.ByteSize()


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
    assert np.shares_memory(request.data, a)
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
    assert np.shares_memory(only_request(a).data, a)


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
    cut = list(operand.pieces(limits(message, most), piece))
    assert [p.start for p in cut[1:]] == [p.stop for p in cut[:-1]]
    assert (cut[0].start, cut[-1].stop) == (0, 10_000)
    sizes = {p.stop - p.start for p in cut}
    assert max(sizes) == longest and max(sizes) - min(sizes) <= 1


def test_a_matrix_beyond_the_message_limit_is_refused_by_name():
    operand = _codec.Operand(np.zeros((1, 40, 40)))
    with pytest.raises(svdserve.InvalidArgument) as refused:
        operand.pieces(limits(max_message_bytes=8192), 1 << 20)
    assert refused.value.field == "matrices.data"


def response(values, **fields):
    return _proto.DecomposeResponse(singular_values=np.asarray(values, "<f8").tobytes(), **fields)


def test_an_answer_is_a_view_of_the_bytes_received():
    message = response([[3, 1], [2, 0]], values_per_matrix=2, count=2, exception_indices=[1], exception_statuses=[3])
    received = message.SerializeToString()
    parsed = _codec.Response.parse(received)
    assert np.shares_memory(np.frombuffer(parsed.values, "u1"), np.frombuffer(received, "u1"))
    operand = _codec.Operand(np.zeros((2, 2, 2)))
    result = _codec.Result(operand)
    result.put(_codec.Piece(0, 2), parsed)
    assert result.values().tolist() == [[3, 1], [2, 0]]
    assert result.statuses().tolist() == [MatrixStatus.OK, MatrixStatus.OUT_OF_RANGE]


def test_an_answer_with_its_fields_in_another_order_is_understood():
    one = response([1, 0]).SerializeToString()
    two = _proto.DecomposeResponse(values_per_matrix=2, count=1).SerializeToString()
    parsed = _codec.Response.parse(two + one)
    assert (bytes(parsed.values), parsed.rest.count) == (np.array([1.0, 0]).tobytes(), 1)


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
    assert {s.name: s.value for s in MatrixStatus if s} == {n: v for n, v in _proto.MATRIX_STATUSES.items() if v}
