"""The servers that share a client's calls, and the attempts of one message. No gRPC here.

The C++ client has the same rules.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable

from ..errors import Error, Overloaded, Unavailable
from ..values import RetryPolicy

_log = logging.getLogger("svdserve")
_LONG_PAUSE = 1.0  # seconds; a call that takes so much longer looks like a hang

# Seconds.
_FIRST_LEAVE, _LONGEST_LEAVE = 0.1, 5.0
_LONGEST_FULL = 1.0
_CHECK_PERIOD = 2.0
CHECK_PATIENCE = 2.0

_OF_NAME = 3  # servers that a name may stand for, which gRPC tells nobody about


#: The pause before another attempt, None: give up. Arguments: the error, the route's pause, the seconds that are left.
PauseAfter = Callable[[Error, float | None, float | None], float | None]


def as_the_route_says(_: Error, pause: float | None, __: float | None) -> float | None:
    """A PauseAfter that has no will of its own."""
    return pause


class _Replica:
    def __init__(self, address: str) -> None:
        self.address = address
        self.state = "up"  # or "full" until a time, or "down" until a health check
        self.until = 0.0
        self.next_check = 0.0
        self.failures = 0  # in a row
        self.is_checked = False
        self.unhealthy = False  # by its own word; a call that succeeds all the same does not bring it back


class Rotation:
    """Which replicas take calls. It may be used by several threads at once.

    A replica that is out of reach or drains is left for a while, 0.1 s at first and 5 s at most. It comes back when a health
    check found it serving. One that rejects a call for load is left for as long as it says, 1 s at most. While none
    takes calls, the one that is due first gets them.

    `first`: the replica that gets the first call. `clock`: seconds, such as time.monotonic.
    """

    def __init__(self, addresses: Iterable[str], first: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._replicas = [_Replica(address) for address in addresses]
        self._clock = clock
        self._turn = first
        # The budget of attempts at once: a failure of all servers must not multiply their load. A failure takes one token,
        # a success gives a tenth; while half are there, such attempts are free. gRFC A6 has the rule.
        self._tokens = 10.0
        self._lock = threading.Lock()
        #: Servers that a call may find.
        self.width = sum(_OF_NAME if a.startswith("dns:") else 1 for a in (r.address for r in self._replicas))

    def __len__(self) -> int:
        return len(self._replicas)

    def next(self, tried: Collection[int] = ()) -> int:
        """Where a call goes that failed at those of `tried` already."""
        with self._lock:
            now, turn = self._clock(), self._turn
            self._turn += 1
            for r in self._replicas:
                if r.state == "full" and now >= r.until:
                    r.state = "up"
            if free := [i for i, r in enumerate(self._replicas) if r.state == "up" and i not in tried]:
                return free[turn % len(free)]
            count = len(self._replicas)
            return min(range(count), key=lambda i: (i in tried, self._replicas[i].until, (i - turn) % count))

    def succeeded(self, replica: int) -> None:
        """A call has its reply."""
        r = self._replicas[replica]
        if self._tokens >= 10.0 and r.state == "up":
            return  # nothing to be said, and so without the lock
        with self._lock:
            self._tokens = min(10.0, self._tokens + 0.1)
            back = r.state == "down" and not r.unhealthy
            if back:
                r.state, r.failures = "up", 0
        if back:
            _log.info("%s takes calls again", r.address)

    def failed(self, replica: int, error: Error) -> None:
        """A call was rejected, or did not reach the server."""
        with self._lock:
            r, now = self._replicas[replica], self._clock()
            self._tokens = max(0.0, self._tokens - 1.0)
            left = False
            if isinstance(error, Unavailable):
                if r.state != "down" or now >= r.until:  # once for calls that failed together
                    left = r.state != "down"
                    self._take_out(r, now)
            elif r.state == "up":
                r.state, r.until = "full", now + min(error.retry_after or 0.0, _LONGEST_FULL)
        if left and len(self) > 1:
            _log.warning("%s is left to itself, the other servers get its calls: %s", r.address, error)

    def due(self) -> int | None:
        """A replica whose health is to be checked now, once every 2 s while calls are made; then checked() must follow."""
        if len(self) == 1:
            return None
        now = self._clock()
        if all(r.is_checked or now < (r.until if r.state == "down" else r.next_check) for r in self._replicas):
            return None
        with self._lock:
            for i, r in enumerate(self._replicas):
                if not r.is_checked and now >= (r.until if r.state == "down" else r.next_check):
                    r.is_checked = True
                    return i
        return None

    def checked(self, replica: int, serving: bool) -> None:
        """The outcome of a health check."""
        with self._lock:
            r, now = self._replicas[replica], self._clock()
            was_down = r.state == "down"
            r.is_checked, r.unhealthy, r.next_check = False, not serving, now + _CHECK_PERIOD
            if not serving:
                self._take_out(r, now)
            else:
                r.failures = 0
                r.state = "up" if was_down else r.state
        if not serving and not was_down:
            _log.warning("%s does not serve, the other servers get its calls", r.address)
        if serving and was_down:
            _log.info("%s takes calls again", r.address)

    def may_hurry(self) -> bool:
        """Whether an attempt may follow a failure at once."""
        return self._tokens > 5.0

    def address(self, replica: int) -> str:
        """The address of the replica."""
        return self._replicas[replica].address

    def _take_out(self, r: _Replica, now: float) -> None:
        r.state, r.until = "down", now + min(_LONGEST_LEAVE, _FIRST_LEAVE * 2.0 ** min(r.failures, 6))
        r.failures += 1


class Route:
    """The attempts of one message: when, and at which replica.

    A message that one replica rejects, or that it is out of reach for, goes to the next at once. When all have failed it
    waits as RetryPolicy says, for the shortest of their delays. So it does where the budget of such attempts is spent.
    """

    def __init__(self, rotation: Rotation, policy: RetryPolicy) -> None:
        self._rotation = rotation
        self._policy = policy
        self._rounds = 1
        self._attempts = 1
        self._tried: set[int] = set()
        self._failed = 0  # attempts in this round
        self._shortest: float | None = None  # of the delays that this round's replicas named
        self.replica = 0  #: of the last attempt

    @property
    def address(self) -> str:
        """Where the last attempt went."""
        return self._rotation.address(self.replica)

    @property
    def has_others(self) -> bool:
        """There may be another server."""
        return self._rotation.width > 1

    def next(self) -> int:
        """Where the next attempt goes."""
        if self.has_others:
            self.replica = self._rotation.next(self._tried)
        return self.replica

    def succeeded(self) -> None:
        """The attempt has its reply."""
        if self.has_others:
            self._rotation.succeeded(self.replica)

    def pause(self, error: Error, left: float | None) -> float | None:
        """Seconds to wait before the next attempt, 0 for one at once; None: give up. `left`: of the timeout."""
        if not self.has_others:
            return self._paused(error, error, left)
        if not (isinstance(error, Overloaded) and error.retry_after is not None or isinstance(error, Unavailable)):
            return None
        self._rotation.failed(self.replica, error)
        if self._policy.max_attempts <= 1:
            return None
        self._tried.add(self.replica)
        self._failed += 1
        delays = [d for d in (self._shortest, error.retry_after) if d is not None]
        self._shortest = min(delays, default=None)
        all_failed = self._failed >= self._rotation.width
        if not all_failed and self._rotation.may_hurry():
            if left is not None and left <= 0:
                return None
            self._attempts += 1
            _log.info("%s: attempt %d goes to another server at once, after: %s", self.address, self._attempts, error)
            return 0.0
        waits = error
        if not all_failed:
            waits = Unavailable("")  # another replica is there: a short wait is enough
        elif self._shortest is not None:
            waits = Overloaded("", retry_after=self._shortest)
        if all_failed:
            self._tried, self._failed, self._shortest = set(), 0, None
        return self._paused(waits, error, left)

    def _paused(self, waits: Error, error: Error, left: float | None) -> float | None:
        """RetryPolicy.pause(). A pause is a line of the log, a warning if it is long."""
        pause = self._policy.pause(waits, self._rounds, left)
        if pause is not None:
            self._rounds += 1
            self._attempts += 1
            level = logging.WARNING if pause >= _LONG_PAUSE else logging.INFO
            _log.log(level, "%s: attempt %d of %d follows in %.2f s, after: %s", self.address, self._rounds,
                     self._policy.max_attempts, pause, error)
        return pause
