"""How long to wait before the next attempt: longer after each failure, at once after a success."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Delays of ``first_s``, ``first_s × factor``, … up to ``longest_s``."""

    first_s: float = 0.05
    factor: float = 4.0
    longest_s: float = 10.0
    failures: int = 0
    """In a row."""

    def failed(self) -> float:
        """Note a failure; the seconds to wait before the next attempt."""
        delay = min(self.longest_s, self.first_s * self.factor ** min(self.failures, 32))
        self.failures += 1
        return delay

    def succeeded(self) -> None:
        self.failures = 0
