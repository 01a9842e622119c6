"""One version on this node: its replicas, how its starts have gone, and whether it may be started again. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from functions.errors import DespinaError, StartFailed
from functions.names import Ref
from workers.node.backoff import Backoff
from workers.node.messages import VersionEvent
from workers.node.plan import Plan
from workers.node.replica import Replica

EARLY_DEATHS = 3
"""So many replicas in a row that died before they were ready, and the version has failed."""
STEADY_S = 30.0
"""A replica that was ready for so long owes nothing to earlier deaths."""


@dataclass(slots=True)
class Hosted:
    """Lanes are keyed by (replica number, lane number); those that leave are not among them any more."""

    ref: Ref
    plan: Plan | None = None
    planning: bool = False
    fetched_s: float = 0.0
    """How long the plan took."""
    lanes: dict[tuple[int, int], Replica] = field(default_factory=dict)
    leaving: set[Replica] = field(default_factory=set)
    failure: VersionEvent | None = None
    refusal: DespinaError | None = None
    """Why the last replica that was wanted could not be placed."""
    not_before: float = 0.0
    """No start before this time."""
    _early: int = 0
    _starts: Backoff = field(default_factory=Backoff)
    _retries: Backoff = field(default_factory=lambda: Backoff(first_s=30.0, factor=2.0, longest_s=600.0))

    @property
    def idle(self) -> bool:
        """Nothing of it is here or on its way."""
        return not self.lanes and not self.leaving and not self.planning

    def missing(self, wanted: int) -> list[tuple[int, int]]:
        """The lanes to start so that there are ``wanted`` whole replicas, those of the first replica first."""
        lanes = self.plan.lanes if self.plan else 0
        return [(number, lane) for number in range(wanted) for lane in range(lanes) if (number, lane) not in self.lanes]

    def surplus(self, wanted: int) -> list[Replica]:
        """The replicas to end so that there are no more than ``wanted``."""
        return [replica for (number, _), replica in self.lanes.items() if number >= wanted]

    def forget(self, replica: Replica) -> bool:
        """It is gone. Whether it was to stay."""
        self.leaving.discard(replica)
        key = (replica.number, replica.lane)
        if self.lanes.get(key) is replica:
            del self.lanes[key]
            return True
        return False

    def ready(self) -> None:
        """A replica became ready: earlier failures to start are history."""
        self._early = 0
        self._retries.succeeded()

    def died(self, replica: Replica, now: float, output: str) -> VersionEvent | None:
        """A replica ended that was to stay. The failure of the version, if this was one death too many; else the next start is put off."""
        error = replica.error
        assert error is not None
        if replica.ready_at is not None:
            if now - replica.ready_at >= STEADY_S:
                self._starts.succeeded()
        elif replica.deterministic:
            return self.failed(error, now, output)
        elif replica.pid:
            self._early += 1
            if self._early >= EARLY_DEATHS:
                self._early = 0
                reason = StartFailed(f"{self.ref}: {EARLY_DEATHS} replicas in a row died while they started; the last: {error}")
                return self.failed(reason, now, output)
        self.not_before = now + self._starts.failed()
        return None

    def failed(self, error: DespinaError, now: float, output: str = "") -> VersionEvent:
        """The version cannot start. Longer until it may be tried again each time; what mends by itself is tried sooner."""
        wait_s = self._starts.failed() if error.retry else self._retries.failed()
        self.not_before = now + wait_s
        self.failure = VersionEvent(
            self.ref.name, self.ref.version, failed=True, wire=error.wire, message=str(error), output=output, retry_after_s=wait_s
        )
        return self.failure

    def forgive(self) -> VersionEvent | None:
        """Let it be tried again. The event that says so, if it had failed."""
        had_failed, self.failure, self.not_before, self._early = self.failure, None, 0.0, 0
        return VersionEvent(self.ref.name, self.ref.version, failed=False) if had_failed else None
