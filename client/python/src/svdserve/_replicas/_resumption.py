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
    """The attempts to go on with one matrix, by the token that its server gave.

    They last as long as the call's timeout, without one as long as RetryPolicy.max_server_delay. A matrix that ends one
    server after the other is given up after RetryPolicy.max_attempts of them.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._attempts = 0  # since a server with the matrix went away
        self._since = 0.0
        self._resumed = 0  # servers that went on with it

    def pause(self, factor: Factor, error: Error, left: float | None) -> float | None:
        """Seconds to wait before another attempt, after one failed; None: there is no token to go on with.

        0 where the server does not know the token: then the next attempt sends the matrix again. `left`: of the timeout.
        """
        if factor.accepted:
            self._attempts = 0
            self._resumed += factor.is_resumed
        if factor.is_resumed and error.reason == "RESUME_UNKNOWN":
            factor.forget_token()
            _log.info("the matrix is sent again: %s", error)
            return 0.0
        if not factor.token or self._policy.max_attempts <= 1 or self._resumed >= self._policy.max_attempts:
            return None
        now = self._clock()
        if self._attempts == 0:
            self._since = now
        self._attempts = min(self._attempts + 1, _MOST_DOUBLINGS)
        if left is None:
            left = self._policy.max_server_delay - (now - self._since)
        pause = dataclasses.replace(self._policy, max_attempts=sys.maxsize).pause(error, self._attempts, left)
        if pause is not None:
            _log.info("the matrix is resumed in %.2f s, after: %s", pause, error)
        return pause
