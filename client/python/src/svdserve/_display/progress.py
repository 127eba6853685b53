"""How far a call is as a whole, and the bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ..values import Progress

OnProgress = Callable[[Progress], object]

_SURE = 0.1  # after this part of a stage its time follows from what the part has taken
_REDRAWN = 0.1  # seconds between two states of a line


class Estimate:
    """Seconds that a large matrix still takes, from the updates about it.

    The server predicts the time of the computation, and the download takes as long a byte as the upload. Once a stage is
    under way, its time follows from the part that is done and the time that this has taken.
    """

    def __init__(self, upload_bytes: int, download_bytes: int) -> None:
        #: seconds of the computation; 0: the server does not say, and it is taken for as long as the upload
        self.predicted = 0.0
        self._download = download_bytes / max(1, upload_bytes)  # relative to the upload
        self._uploaded = 0.0  # seconds
        self._stage = ""  # "upload", "queued", "compute" or "download"; it began with this fraction at this time:
        self._began = 0.0, 0.0
        self._last = 0.0  # time of the last update
        self._overall = 0.0

    def __call__(self, progress: Progress) -> Progress:
        """The update with `overall` and `eta_seconds`."""
        stage = progress.stage if progress.stage in ("upload", "queued", "download") else "compute"
        if stage != self._stage:
            # A computation has begun since the last update; other stages begin with what they tell.
            self._began = (0.0, self._last) if stage == "compute" else (progress.fraction, progress.elapsed_seconds)
            self._stage = stage
        self._last = progress.elapsed_seconds
        left = self._left(stage, progress.fraction, progress.elapsed_seconds)
        if stage == "download" and progress.fraction >= 1:
            self._overall, left = 1.0, 0.0
        else:
            self._overall = max(self._overall, min(0.99, self._last / max(self._last + left, 1e-9)))
        return dataclasses.replace(progress, overall=self._overall, eta_seconds=left)

    def _left(self, stage: str, fraction: float, elapsed: float) -> float:
        done, spent = fraction - self._began[0], elapsed - self._began[1]
        if stage == "upload":
            self._uploaded = spent / done if done > 0 else elapsed
        compute, download = self.predicted or self._uploaded, self._uploaded * self._download
        if stage == "upload":
            return self._uploaded * (1 - fraction) + compute + download
        if stage == "queued":
            return compute + download
        left = max((compute if stage == "compute" else download) * (1 - self._began[0]) - spent, 0.0)
        if done > 0:
            sure = min(1.0, done / _SURE)
            left = sure * spent * (1 - fraction) / done + (1 - sure) * left
        return left + (download if stage == "compute" else 0.0)


class Teller:
    """The caller's callback, for the matrices of one call: one update at a time, and none after it raised."""

    def __init__(self, on_progress: OnProgress) -> None:
        """Raises TypeError."""
        if not callable(on_progress):
            raise TypeError(f"progress is {on_progress!r}, but must be True or callable")
        self.matrices = 1  #: of the call
        self._overall: dict[int, float] = {}  # of each that has begun
        self._on_progress = on_progress
        self._telling = threading.Lock()
        self._failed = False

    def __call__(self, progress: Progress, matrix: int) -> None:
        """`matrix` is a number that no other matrix of the call has."""
        with self._telling:
            if self._failed:
                return
            self._failed = True  # unless it returns
            self._on_progress(self._of_all(progress, matrix))
            self._failed = False

    def _of_all(self, progress: Progress, matrix: int) -> Progress:
        self._overall[matrix] = progress.overall
        if self.matrices == 1:
            return progress
        overall = sum(self._overall.values()) / self.matrices
        eta = progress.elapsed_seconds * (1 - overall) / overall if overall > 0 else None
        return dataclasses.replace(progress, overall=overall, eta_seconds=eta)


class _Line:
    """One line of a terminal, drawn anew with each update. Elsewhere its last state is one line of text."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_terminal = file.isatty()
        self._text = ""
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        filled = round(30 * progress.overall)
        text = (f"{progress.overall:4.0%} [{'=' * filled}{' ' * (30 - filled)}] {_stage(progress)}, "
                f"{_duration(progress.elapsed_seconds)}{_left(progress)}")
        if self._is_terminal:  # a line that wraps could not be drawn over
            text = text[:shutil.get_terminal_size().columns - 1]
        width, self._text = len(self._text), text
        now = time.monotonic()
        if self._is_terminal and (now >= self._next or progress.overall == 1):
            self._next = now + _REDRAWN
            self._file.write(f"\r{text:{width}}")
            self._file.flush()

    def close(self) -> None:
        if self._text:
            self._file.write("\n" if self._is_terminal else self._text + "\n")
            self._file.flush()


class _Tqdm:
    """A bar of tqdm, which notebooks show as a widget."""

    def __init__(self, tqdm: Any) -> None:
        self._bar = tqdm(total=1.0, bar_format="{percentage:3.0f}%|{bar}| {desc}")

    def __call__(self, progress: Progress) -> None:
        text = f"{_stage(progress)}, {_duration(progress.elapsed_seconds)}{_left(progress)}"
        self._bar.set_description_str(text, refresh=False)
        self._bar.update(progress.overall - self._bar.n)

    def close(self) -> None:
        self._bar.refresh()
        self._bar.close()


def _stage(progress: Progress) -> str:
    """Such as "sweep 3 on cuda:0"."""
    stage = f"sweep {progress.sweep}" if progress.stage == "sweep" else progress.stage.replace("_", " ")
    device = "".join(filter(str.isprintable, progress.device))  # the server's text, for a terminal
    return f"{stage} on {device}" if device and progress.stage != "download" else stage


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _left(progress: Progress) -> str:
    return "" if progress.eta_seconds is None or progress.overall == 1 else f", {_duration(progress.eta_seconds)} left"


def _tqdm() -> Any:
    """tqdm's bar for a terminal or a notebook; None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of notebooks without widgets, which have lines of text then
            return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None


@contextlib.contextmanager
def shown(progress: OnProgress | bool | None) -> Iterator[OnProgress | None]:
    """The callable that receives updates; of True a bar, which ends with the call."""
    if progress is not True:
        yield progress or None
        return
    if sys.stderr is None:  # a process without a terminal may have none
        yield lambda update: None
        return
    bar: list[_Tqdm | _Line] = []

    def show(update: Progress) -> None:
        if not bar:  # small matrices have no updates, and no bar
            tqdm = _tqdm()
            bar.append(_Tqdm(tqdm) if tqdm else _Line(sys.stderr))
        with contextlib.suppress(OSError, ValueError):  # a stream that is closed or broken shows no bar
            bar[0](update)

    try:
        yield show
    finally:
        for one in bar:
            with contextlib.suppress(OSError, ValueError):
                one.close()
