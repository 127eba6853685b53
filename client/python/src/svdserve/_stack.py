"""The large matrices or the messages of a call on their way, several at once. No gRPC here."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import heapq
import threading
from collections.abc import Callable
from typing import Any

from ._codec import Message
from ._large import Factor
from ._replicas._resumption import Resumption
from ._transfer import Stop
from .errors import Error, Overloaded, Unavailable
from .values import RetryPolicy

_BYTES_AT_ONCE = 64 << 20  # of operands and results: larger matrices keep the server busy one by one


@dataclasses.dataclass(frozen=True)
class Job:
    """A matrix that a lane has taken."""

    index: int
    factor: Factor
    stop: Stop
    alone: bool  #: no other lane is left

    has_others: bool  #: there are other servers
    resumption: Resumption

    def pause_after(self, error: Error, pause: float | None, left: float | None) -> float | None:
        """Seconds to wait after the error before it is sent again; None: it is not. `pause`: of RetryPolicy alone.

        Beside other lanes it does not wait: it goes back to the stack, and this lane ends. A matrix that survives its server
        stays here, and the next attempt goes on with it.
        """
        if self.stop.wanted:
            return None
        if (resumed := self.resumption.pause(self.factor, error, left)) is not None:
            return resumed
        return pause if pause is not None and self._may_repeat(error, pause) else None

    def _may_repeat(self, error: Error, pause: float) -> bool:
        if pause > 0 and not self.alone:
            return False
        return self.is_repeatable(error)

    def is_repeatable(self, error: BaseException) -> bool:
        """Whether the matrix may be sent again at all.

        A server that took the operand may be computing it: only one that rejected it first is asked again. But where
        another server is there, one that went away in the upload is not waited for.
        """
        return not self.factor.accepted or (
            self.has_others and isinstance(error, Unavailable) and not self.factor.is_sent)


class Stack:
    """Hands the matrices of a call, in their order, to lanes: threads or coroutines that each send one at a time.

    A lane calls take(), sends the matrix, and calls done() or failed(). The call's error is that of the first wrong
    matrix, as if they went one after the other. A server may reject a matrix for those that are under way: then the
    matrix waits, and a lane less goes on. The last lane sends rejected matrices again as RetryPolicy says.
    """

    def __init__(self, factors: list[Factor], most_lanes: int, servers: int = 1,
                 policy: RetryPolicy = RetryPolicy()) -> None:
        largest = max((factor.bytes for factor in factors), default=0)
        self.lanes = max(1, min(most_lanes, len(factors), servers * max(1, _BYTES_AT_ONCE // max(1, largest))))
        self._servers = servers
        self._policy = policy
        self._factors = factors
        self._waiting = list(range(len(factors)))  # a heap
        self._stops: dict[int, Stop] = {}  # of those under way
        self._failures: dict[int, BaseException] = {}
        self._lock = threading.Lock()

    def take(self) -> Job | None:
        """The next matrix. None: there is none, and the lane ends."""
        with self._lock:
            if not self._waiting:
                self.lanes -= 1
                return None
            index = heapq.heappop(self._waiting)
            self._stops[index] = Stop()
            return Job(index, self._factors[index], self._stops[index], self.lanes == 1, self._servers > 1,
                       Resumption(self._policy))

    def done(self, job: Job) -> None:
        """The matrix has its results."""
        with self._lock:
            del self._stops[job.index]

    def failed(self, job: Job, error: BaseException) -> bool:
        """Takes the error of a matrix. True: the lane ends."""
        with self._lock:
            del self._stops[job.index]
            if job.stop.wanted:
                return False
            if not job.alone and job.is_repeatable(error) and _may_pass(error):
                heapq.heappush(self._waiting, job.index)
                if self.lanes == 1:
                    return False  # the others ended meanwhile
                self.lanes -= 1
                return True
            self._failures[job.index] = error
        self.end(job.index if isinstance(error, Error) else -1)
        return False

    def end(self, after: int = -1) -> None:
        """Stops all matrices behind the one at `after`."""
        with self._lock:
            self._waiting = sorted(index for index in self._waiting if index < after)
            stops = [stop for index, stop in self._stops.items() if index > after]
        for stop in stops:
            stop.request()

    def raise_failure(self) -> None:
        """Raises what ended the call, if anything did."""
        for error in self._failures.values():
            if not isinstance(error, Error):
                raise error
        if self._failures:
            raise self._failures[min(self._failures)]


class Pieces:
    """Hands the messages of a call to lanes, which send them side by side. No two lanes deliver at once."""

    def __init__(self, messages: list[Message]) -> None:
        self._untaken = iter(messages)
        self._calls: set[Any] = set()  # under way: futures
        self._failure: BaseException | None = None  # the first
        self._lock = threading.Lock()

    def take(self) -> Message | None:
        """The next message. None: there is none, and the lane ends when it has its replies."""
        with self._lock:
            return None if self._failure else next(self._untaken, None)

    def sent(self, call: Any) -> None:
        """The call is under way, and will be cancelled if the whole fails."""
        with self._lock:
            self._calls.add(call)
            failed = self._failure is not None
        if failed:
            call.cancel()

    def deliver(self, message: Message, reply: Any, call: Any) -> None:
        """Takes the reply to a message, which came over the call or after it."""
        with self._lock:
            self._calls.discard(call)
            message.deliver(reply)

    def send(self, lane: Callable[[], None], lanes: int) -> None:
        """Runs the lanes, a single one in the calling thread. Raises what the first of them raises."""

        def run() -> None:
            try:
                lane()
            except BaseException as failure:
                self._fail(failure)

        if lanes == 1:
            run()
        else:
            with concurrent.futures.ThreadPoolExecutor(lanes, "svdserve") as threads:
                try:
                    concurrent.futures.wait([threads.submit(run) for _ in range(lanes)])
                except BaseException as interrupt:  # KeyboardInterrupt
                    self._fail(interrupt)
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or failure
            calls = list(self._calls)
        for call in calls:
            call.cancel()


def _may_pass(error: BaseException) -> bool:
    """Whether the matrix may succeed later, with less beside it."""
    return isinstance(error, Overloaded) and error.retry_after is not None or isinstance(error, Unavailable)
