"""When a call goes on with a large matrix whose server went away. No gRPC here."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Callable

from .._large import Factor
from ..errors import Error
from ..values import RetryPolicy

_log = logging.getLogger("svdserve")

_MOST_DOUBLINGS = 30  # of the pause


class Resumption:
    """The attempts to go on with one matrix, where its server gave a token.

    An operand that was not complete is sent again. Attempts last as long as the call's timeout, without one as long as
    RetryPolicy.max_server_delay. A matrix that ends one server after the other is given up after
    RetryPolicy.max_attempts of them.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._attempts = 0  # since a server with the matrix went away
        self._since = 0.0
        self._accepted = 0  # attempts

    def pause(self, factor: Factor, error: Error, left: float | None) -> float | None:
        """Seconds to wait before another attempt, after one failed; None: the matrix does not survive its server.

        0 where the server does not know the token: then the next attempt sends the matrix again. `left`: of the timeout.
        """
        if factor.accepted:
            self._attempts = 0
            self._accepted += 1
        if factor.is_resumed and error.reason == "RESUME_UNKNOWN":
            factor.forget_token()
            _log.info("the matrix is sent again: %s", error)
            return 0.0
        if not factor.survives or self._policy.max_attempts <= 1 or self._accepted >= self._policy.max_attempts:
            return None
        now = self._clock()
        if self._attempts == 0:
            self._since = now
        self._attempts = min(self._attempts + 1, _MOST_DOUBLINGS)
        if left is None:
            left = self._policy.max_server_delay - (now - self._since)
        pause = dataclasses.replace(self._policy, max_attempts=sys.maxsize).pause(error, self._attempts, left)
        if pause is not None:
            _log.info("the matrix is %s in %.2f s, after: %s", "resumed" if factor.token else "sent again", pause, error)
        return pause
