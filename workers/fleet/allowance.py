"""How many calls a second may come in: a token bucket, time as an argument."""

from __future__ import annotations


class Allowance:
    """Holds at most one second's worth of calls, and at least one; fills at ``rate`` calls a second."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._left = self._most
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one more call may come in at ``now`` (seconds, never decreasing); it is counted if so."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
