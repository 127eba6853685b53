"""How far a call is as a whole, and the bar of progress=True."""

import asyncio
import io
import sys
import types

import numpy as np
import pytest

import svdserve
from svdserve._display.progress import Estimate, Teller, _Line, shown
from svdserve.values import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def course(compute, between=0.25):
    """Updates of a matrix: 1 s of upload, a computation of which the server tells now and then, 2 s of download."""
    for i in range(1, 11):
        yield Progress("upload", i / 10, elapsed_seconds=i / 10)
    yield Progress("queued", elapsed_seconds=1.0)
    for t in np.arange(between, compute, between):
        yield Progress("sweep", t / compute, elapsed_seconds=1 + t)
    for i in range(1, 21):
        yield Progress("download", i / 20, elapsed_seconds=1 + compute + i / 10)


@pytest.mark.parametrize("compute", [0.5, 10.0])
def test_the_estimate_where_the_prediction_is_right(compute):
    estimate = Estimate(100, 200)
    estimate.predicted = compute
    updates = [estimate(p) for p in course(compute)]
    overall = [p.overall for p in updates]
    assert all(x <= y for x, y in zip(overall, overall[1:])) and overall[-1] == 1 and updates[-1].eta_seconds == 0
    assert all(x < 1 for x in overall[:-1])
    assert all(abs(p.overall - p.elapsed_seconds / (3 + compute)) < 0.1 for p in updates)
    assert all(abs(p.eta_seconds - (3 + compute - p.elapsed_seconds)) < 0.1 for p in updates[1:])


@pytest.mark.parametrize("predicted", [0.0, 1.0, 100.0])
def test_the_estimate_where_the_prediction_is_wrong(predicted):
    estimate = Estimate(100, 200)
    estimate.predicted = predicted
    updates = [estimate(p) for p in course(10.0)]
    overall = [p.overall for p in updates]
    assert all(x <= y for x, y in zip(overall, overall[1:])) and overall[-1] == 1
    assert all(abs(p.eta_seconds - (13 - p.elapsed_seconds)) < 0.1 for p in updates if p.elapsed_seconds > 2.5)


def test_nothing_is_divided_by_zero():
    for stage in ("upload", "queued", "sweep", "download"):
        for fraction in (0.0, 0.5, 1.0):
            p = Estimate(0, 0)(Progress(stage, fraction))
            assert 0 <= p.overall <= 1 and p.eta_seconds == 0


@pytest.mark.parametrize("predicted", [float("nan"), -1.0, float("inf")])
def test_a_prediction_that_makes_no_sense(fake, rng, predicted):
    fake.limits["max_values"] = 32
    told = []

    def predict(message):
        if message.WhichOneof("step") == "accepted":
            message.accepted.predicted_seconds = predicted

    fake.large.tamper = predict
    with svdserve.Client(fake.address) as client:
        client.svd(rng.standard_normal((40, 36)), False, progress=told.append)
    assert all(0 <= p.overall <= 1 and 0 <= p.eta_seconds < float("inf") for p in told) and told[-1].overall == 1


def test_matrices_of_a_stack_count_together():
    told = []
    teller = Teller(told.append)
    teller.matrices = 4
    for matrix, overall in ((1, 0.5), (2, 0.5), (1, 1.0), (3, 0.2)):
        teller(Progress("sweep", overall=overall, elapsed_seconds=3.0, eta_seconds=9.0), matrix)
    assert [p.overall for p in told] == [0.125, 0.25, 0.375, 0.425] and told[1].eta_seconds == 9.0 and told[2].eta_seconds == 5.0


@pytest.mark.parametrize("stack", [False, True])
def test_overall_and_eta_of_a_call(client, rng, stack):
    told = []
    a = rng.standard_normal((3, 700, 600) if stack else (300, 200))
    client.svd(a, False, progress=told.append)
    overall = [p.overall for p in told]
    assert all(x <= y for x, y in zip(overall, overall[1:])) and overall[-1] == 1
    assert all(p.eta_seconds is None or p.eta_seconds >= 0 for p in told)
    assert {p.matrix for p in told} == ({0, 1, 2} if stack else {0})
    for p in told:
        computes = p.stage not in ("upload", "queued", "download")
        assert p.device == "host:0" if computes else p.stage == "download" or not p.device


@pytest.mark.usefixtures("without_tqdm")
def test_a_line_of_the_terminal(client, rng, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    result = client.svd(rng.standard_normal((300, 200)), False, progress=True)
    text = terminal.getvalue()
    states = text.rstrip("\n").split("\r")[1:]
    assert result.summaries and text.startswith("\r") and text.rstrip().endswith(" s") and text[-1] == "\n" and text.count("\n") == 1
    assert states[-1].startswith("100% [" + "=" * 30 + "] download, ")
    assert all(len(x.rstrip()) <= len(y) for x, y in zip(states, states[1:]))  # a shorter state leaves no rests
    assert "left" in states[0]


def test_the_bar_names_the_devices():
    file = io.StringIO()
    line = _Line(file)
    line(Progress("sweep", sweep=2, device="cuda:0,cuda:1"))
    line(Progress("sweep", sweep=3, device="cuda:0,\x1bcuda:1", elapsed_seconds=4))
    line.close()
    assert file.getvalue() == f"  0% [{' ' * 30}] sweep 3 on cuda:0,cuda:1, 4 s\n"


@pytest.mark.usefixtures("without_tqdm")
def test_elsewhere_one_line_at_the_end(address, rng, monkeypatch):
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            await client.svd(rng.standard_normal((300, 200)), False, progress=True)
            await client.svdvals(rng.standard_normal((5, 4, 4)), progress=True)  # no updates, no bar

    asyncio.run(ask())
    assert file.getvalue().startswith("100% [=") and file.getvalue().count("\n") == 1


class Broken(io.StringIO):
    def write(self, text):
        raise OSError("broken pipe")


@pytest.mark.usefixtures("without_tqdm")
@pytest.mark.parametrize("stream", [None, Broken()])
def test_a_stream_that_takes_nothing_does_no_harm(client, rng, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    assert client.svd(rng.standard_normal((300, 200)), False, progress=True).summaries


def test_tqdm_where_it_is_installed(client, rng, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, total, bar_format):
            self.n, self.total, self.text, self.closed = 0.0, total, [], False
            bars.append(self)

        def update(self, step):
            assert step >= 0
            self.n += step

        def set_description_str(self, text, refresh):
            self.text.append(text)

        def refresh(self):
            assert not self.closed

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    client.svd(rng.standard_normal((300, 200)), False, progress=True)
    (bar,) = bars
    assert bar.closed and bar.total == 1 and abs(bar.n - 1) < 1e-9 and bar.text[0].startswith("upload, 0 s")
    with pytest.raises(svdserve.InvalidArgument):
        client.svd(np.full((300, 200), np.nan), progress=True)
    assert bars[1].closed and bars[1].n < 1


def test_a_real_tqdm(client, rng, capsys):
    pytest.importorskip("tqdm")
    client.svd(rng.standard_normal((300, 200)), False, progress=True)
    assert "100%|" in capsys.readouterr().err


def test_what_may_be_given():
    for nothing in (None, False):
        with shown(nothing) as on_progress:
            assert on_progress is None
    with shown(print) as on_progress:
        assert on_progress is print
