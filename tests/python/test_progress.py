"""How far a call is as a whole, and the bar of progress=True."""

import asyncio
import io
import sys
import types

import numpy as np
import pytest

import svdserve
from svdserve._display.progress import Estimate, Teller, shown
from svdserve.values import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def course(seconds, *, compute=8.0, started=0.0):
    """Updates of a matrix: 1 s of upload, a computation that has been at `started` from its start, 1 s of download."""
    for t in np.arange(0.1, seconds, 0.1):
        if t < 1:
            yield Progress("upload", float(t), elapsed_seconds=t)
        elif t < 1 + compute:
            yield Progress("sweep", started + (1 - started) * (t - 1) / compute, elapsed_seconds=t)
        else:
            yield Progress("download", t - 1 - compute, elapsed_seconds=t)
    yield Progress("download", 1.0, elapsed_seconds=seconds)


@pytest.mark.parametrize("guess", [0.8, 8.0, 80.0])  # seconds of the computation, which takes 8
@pytest.mark.parametrize("started", [0.0, 0.2])
def test_the_estimate(guess, started):
    estimate = Estimate(100, 100, guess * 2e10)
    updates = [estimate(p) for p in course(10.0, started=started)]
    overall = [p.overall for p in updates]
    assert all(x <= y for x, y in zip(overall, overall[1:])) and 0 <= overall[0] and overall[-1] == 1
    assert all(x < 1 for x in overall[:-1]) and updates[-1].eta_seconds == 0
    for p in updates:
        if guess == 8.0 or p.elapsed_seconds > 6:
            assert abs(p.eta_seconds - (10 - p.elapsed_seconds)) < 1.1
        if guess == 8.0:
            assert abs(p.overall - p.elapsed_seconds / 10) < 0.1


def test_a_fraction_that_stands_still_is_no_end_in_sight():
    estimate = Estimate(1, 1, 2e10)
    at = [estimate(Progress("finish", 0.9, elapsed_seconds=float(t))) for t in range(10)]
    assert all(0.4 < p.overall < 0.6 for p in at[2:]) and at[9].eta_seconds == 9


def test_nothing_is_divided_by_zero():
    for stage in ("upload", "queued", "sweep", "download"):
        p = Estimate(0, 0, 0.0)(Progress(stage, 0.0))
        assert 0 <= p.overall <= 1 and p.eta_seconds == 0


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
