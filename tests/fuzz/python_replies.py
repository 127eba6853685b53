"""Replies of a server that lies: the Python client's decoders against libprotobuf's messages.

    python3 tests/fuzz/python_replies.py --mutations=1000000       # of the corpora, from a fixed seed
    pip install atheris && python3 tests/fuzz/python_replies.py --atheris=reply [libFuzzer's arguments, a corpus]

The package svdserve is to be importable. tests/python/test_fuzz.py runs the corpora and some mutations.
"""
import argparse
import base64
import contextlib
import pathlib
import random
import sys
import time

import numpy as np

import svdserve
from svdserve import _codec, _large, _proto, errors
from svdserve._query import Mimo, Query
from svdserve.values import Limits

CORPORA = pathlib.Path(__file__).resolve().parent / "corpora"
LIMITS = Limits(32, 16384, 1 << 24, 64 << 20, 1, 1, 1, 4096)
TWO, WIDE = np.ones((3, 2, 2)), np.ones((2, 1, 3))
QUESTIONS = [
    (TWO, Query()),
    (WIDE, Query(vectors="thin", certificate="batch")),
    (TWO, Query(mimo=Mimo(("capacity", "stream_snr", "condition_number"), snr_db=(0.0, 10.0)))),
    (TWO, Query(eigenproblem="hermitian", vectors="thin")),
    (TWO, Query(eigenproblem="general", vectors="full", condition=True)),
]


def message_of(kind, data):
    """The message by libprotobuf; None: the bytes are none."""
    with contextlib.suppress(_proto.DecodeError):
        return kind.FromString(data)
    return None


# protobuf 4.25 takes lengths of more than 5 bytes, which nobody writes. Newer versions and libprotobuf of C++ reject them.
LENIENT = message_of(_proto.DecomposeResponse, b"\x1a\x83\x80\x80\x80\x80\x00abc") is not None


def may_reject(message, error):
    """Whether the client may reject what protobuf has made this of."""
    return message is None or LENIENT or "unknown kind" in str(error)  # groups, which proto3 has not


def reply(data):
    """The first byte is the question, the rest a reply to it."""
    if not data:
        return
    question, data = data[0] % (len(QUESTIONS) + 1), data[1:]
    matrices, query = QUESTIONS[question % len(QUESTIONS)]
    message = message_of(_proto.DecomposeResponse, data)
    try:
        response = _codec.Response.parse(data)
    except _proto.DecodeError as error:
        assert may_reject(message, error), "a message is rejected"
        return
    if message is not None:
        known = {name: bytes(plane) for name, plane in response.planes.items() if hasattr(message, name)}
        assert all(getattr(message, name) == plane for name, plane in known.items()), "a plane differs"
        assert response.rest.count == message.count and len(response.groups) == len(message.groups)
    operands = [_codec.Operand(matrices)] * (2 if question == len(QUESTIONS) else 1)
    results = [(operand, _codec.Result(operand, query)) for operand in operands]
    (request,) = _codec.messages(results, query, LIMITS, _codec.PieceSize(1 << 30))
    with contextlib.suppress(svdserve.Internal):
        request.deliver(response)
        for _, result in results:
            assert result.statuses().shape == matrices.shape[:1]
            assert result.values().shape[0] == len(matrices)


def large_reply(data):
    """A message of DecomposeLarge, before and after the matrix was accepted."""
    message = message_of(_proto.DecomposeLargeResponse, data)
    try:
        got = _large.Reply.parse(data)
    except _proto.DecodeError as error:
        assert may_reject(message, error), "a message is rejected"
        return
    if message is not None and got.step == "factor_chunk" == message.WhichOneof("step"):
        assert got.data == message.factor_chunk.data or len(list(_codec.fields(memoryview(data)))) > 1
    operand, query = _codec.Operand(np.ones((3, 2))), Query()
    factor = _large.Factor(operand, 0, query, _codec.Result(operand, query), None)
    sizes = {"chunk_bytes": 1 << 20, "operand_bytes": 48, "result_bytes": 16}
    accepted = _large.Reply("accepted", _proto.DecomposeLargeResponse.FromString(
        _proto.DecomposeLargeResponse(accepted=sizes).SerializeToString()).accepted)
    for earlier in ([], [accepted]):
        with contextlib.suppress(svdserve.Error):
            for step in earlier:
                factor.take(step)
                list(factor.chunks())
            factor.take(got)
            factor.finish()


def status(data):
    """The details of an error."""
    found = errors._read_details(data[1:])
    assert set(found) <= {"violations", "reason", "metadata", "retry_after", "request_id"}
    assert found.get("retry_after", 0) >= 0


TARGETS = {"reply": reply, "large_reply": large_reply, "status": status}


def corpus(name):
    lines = (CORPORA / f"{name}.txt").read_text(encoding="ascii").splitlines()
    return [base64.b64decode(line) for line in lines if not line.startswith("#")]


def mutated(data, generator):
    """The bytes with some changed, doubled or cut out."""
    data = bytearray(data)
    for _ in range(generator.randint(1, 3)):
        at, other = (generator.randrange(len(data) + 1) for _ in range(2))
        change = generator.randrange(4)
        if change == 0 and at < len(data):
            data[at] = generator.randrange(256)
        elif change == 1 and at < len(data):
            data[at] ^= 1 << generator.randrange(8)
        elif change == 2:
            data[at:at] = data[min(at, other):max(at, other)][:16]
        else:
            del data[at:at + generator.randint(1, 4)]
    return bytes(data)


def mutations(name, count, seed=1):
    """Runs so many mutations; returns the seconds of the slowest. An input that fails is printed in base64."""
    generator, inputs, slowest = random.Random(f"{name} {seed}"), corpus(name), 0.0
    for _ in range(count):
        data = mutated(generator.choice(inputs), generator)
        begin = time.perf_counter()
        try:
            TARGETS[name](data)
        except Exception:
            print(f"{name}: {base64.b64encode(data).decode()}")
            raise
        slowest = max(slowest, time.perf_counter() - begin)
    return slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10000, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--atheris", choices=sorted(TARGETS), help="the target; needs the package atheris")
    args, rest = parser.parse_known_args()
    if not args.atheris:
        for name in TARGETS:
            print(f"{name:12} {args.mutations} mutations, the slowest {mutations(name, args.mutations, args.seed):.3f} s")
        return
    import atheris
    for module in (_codec, _large, errors):
        for attribute, value in list(vars(module).items()):
            if getattr(value, "__module__", "") == module.__name__ and callable(value) and not isinstance(value, type):
                setattr(module, attribute, atheris.instrument_func(value))
    _codec.Response.parse = staticmethod(atheris.instrument_func(_codec.Response.parse))
    atheris.Setup([sys.argv[0], *rest], TARGETS[args.atheris])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
