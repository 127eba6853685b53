"""Clients and results as they are printed, and retries as they are logged."""

import asyncio
import logging
import pickle
import re
import sys

import grpc
import numpy as np
import pytest
from test_arrays import OnDevice

import svdserve

A = np.stack([np.diag([3.0, 2.0, 1.0]), np.diag([8.0, 4.0, 2.0])]).astype(np.complex64)


def test_clients(address):
    client = svdserve.Client(address)
    assert repr(client) == f"<svdserve.Client {address!r}, open>"
    client.close()
    assert repr(client) == f"<svdserve.Client {address!r}, closed>"

    async def show():
        client = svdserve.AsyncClient(address)
        shown = repr(client)
        await client.close()
        return shown, repr(client)

    assert asyncio.run(show()) == tuple(f"<svdserve.AsyncClient {address!r}, {state}>" for state in ("open", "closed"))


def test_the_server(client):
    lines = repr(client.info()).splitlines()
    assert lines[0] == f"svdserve {svdserve.__version__}"
    assert re.fullmatch(r"  host:0 +\w+, \d+ threads", lines[1])
    assert lines[2] == "  types           f32, f64, c64, c128, f16, bf16, c32, i16, ci16"
    assert [line.split("  ")[1] for line in lines[2:]] == ["types", "methods", "batches", "messages", "large matrices"]
    assert client.info()._repr_html_().startswith("<table><caption>svdserve ")


SHOWN = {
    "svd": (lambda c: c.svd(A), """\
SVDResult
  U         (2, 3, 3) complex64
  S         (2, 3) float32
  Vh        (2, 3, 3) complex64
  spectrum  largest 8, smallest 1, condition up to 4
  status    2 OK"""),
    "svd of one": (lambda c: c.svd(A[0].real), """\
SVDResult
  U         (3, 3) float32
  S         (3,) float32
  Vh        (3, 3) float32
  spectrum  largest 3, smallest 1, condition 3
  status    1 OK"""),
    "svd of nothing": (lambda c: c.svd(np.zeros((0, 2, 2))), """\
SVDResult
  U   (0, 2, 2) float64
  S   (0, 2) float64
  Vh  (0, 2, 2) float64"""),
    "svd with a NaN": (lambda c: c.svd(np.stack([np.full((2, 2), np.nan), np.eye(2)])), """\
SVDResult
  U         (2, 2, 2) float64
  S         (2, 2) float64
  Vh        (2, 2, 2) float64
  spectrum  largest 1, smallest 1, condition up to 1
  status    1 OK, 1 NON_FINITE"""),
    "singular": (lambda c: c.svd(np.zeros((2, 2)), certificate=True), """\
SVDResult
  U            (2, 2) float64
  S            (2,) float64
  Vh           (2, 2) float64
  spectrum     largest 0, smallest 0, condition inf
  status       1 OK
  certificate  residual 0, orthogonality 0 and 0"""),
    "eigh": (lambda c: c.eigh(-A), """\
EighResult
  eigenvalues   (2, 3) float32
  eigenvectors  (2, 3, 3) complex64
  spectrum      largest 8, smallest 1, condition up to 4
  status        2 OK"""),
    "eig": (lambda c: c.eig(A, condition=True), """\
EigResult
  eigenvalues   (2, 3) complex64
  eigenvectors  (2, 3, 3) complex64
  spectrum      largest 8, smallest 1
  condition     (2, 3) float32: 1 .. 1, mean 1
  status        2 OK"""),
    "eig, left": (lambda c: c.eig(A, left=True), """\
EigLeftResult
  eigenvalues        (2, 3) complex64
  left_eigenvectors  (2, 3, 3) complex64
  eigenvectors       (2, 3, 3) complex64
  spectrum           largest 8, smallest 1
  status             2 OK"""),
    "mimo": (lambda c: c.mimo(A, snr_db=0, capacity=True, condition_number=True, precoders=2), """\
MimoResult
  capacity          (2,) float32: 3.637 .. 8.366, mean 6.002
  condition_number  (2,) float32: 3 .. 4, mean 3.5
  precoders         (2, 3, 2) complex64
  status            2 OK"""),
}


@pytest.mark.parametrize("result", SHOWN)
def test_results(client, result):
    call, text = SHOWN[result]
    found = call(client)
    assert repr(found) == str(found) == text
    assert repr(pickle.loads(pickle.dumps(found))) == text
    table = found._repr_html_()
    for line in text.splitlines()[1:]:
        name, shown = re.fullmatch(r"  (\w+) +(.*)", line).groups()
        assert f">{name}</th>" in table and f">{shown}</td>" in table


def test_large_matrices_say_how(client, rng):
    shown = repr(client.svd(rng.standard_normal((150, 140)), progress=lambda p: None))
    assert re.search(r"\n  computed +by \w+ on host:0, \d+ sweeps, [\d.e-]+ s$", shown)


def test_arrays_of_other_libraries(monkeypatch, client):
    monkeypatch.setitem(sys.modules, "cupy", type("cupy", (), dict(ndarray=OnDevice, asarray=OnDevice)))
    assert repr(client.svd(OnDevice(A))) == SHOWN["svd"][1]
    assert repr(svdserve.SVDResult("no", None, 3)).startswith("SVDResult\n  U ")  # whatever a user makes


def test_the_log_has_a_line_for_each_retry(fake, caplog):
    pauses = iter([0.001, 1.2])
    policy = svdserve.RetryPolicy(max_attempts=3)
    object.__setattr__(policy, "pause", lambda error, attempt, left: next(pauses, None))

    def reject(request, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

    fake.handler = reject
    with caplog.at_level(logging.INFO, "svdserve"), svdserve.Client(fake.address, retry=policy) as client:
        client._pause = lambda seconds, stop: None
        with pytest.raises(svdserve.Unavailable):
            client.svdvals(A)
    assert [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "svdserve"] == [
        ("INFO", f"{fake.address}: attempt 2 of 3 follows in 0.00 s, after: not now [UNAVAILABLE]"),
        ("WARNING", f"{fake.address}: attempt 3 of 3 follows in 1.20 s, after: not now [UNAVAILABLE]")]
