"""When to start a batch, and with which of the waiting calls: pure decisions, time as an argument.

Triton's rules: calls join in the order in which they wait; a batch ends before the first call whose key differs (its shapes, its
set of optional inputs) or that would take it over the largest size; a call with n rows counts n and is never split; the
largest preferred size that fits goes at once, anything else waits until its oldest call is ``delay_s`` old.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from functions.protocol.values import Request


class Waiting(Protocol):
    """What the decision looks at in a waiting call."""

    rows: int
    key: Hashable
    queued_s: float
    """time.monotonic() at which it began to wait, the router's queue included."""


class Cut(NamedTuple):
    """Start the first ``take`` calls now; if that is 0, look again at ``until`` (time.monotonic(); None: when a call arrives)."""

    take: int
    until: float | None = None


NOTHING = Cut(0)
ONE = Cut(1)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one model's calls become batches."""

    largest: int = 0
    """Rows of the largest batch; 0: calls are never joined."""
    preferred: tuple[int, ...] = ()
    """Sizes in rows, ascending, worth starting at once; empty: ``largest`` alone."""
    delay_s: float = 0.0
    """How long the oldest call waits for a preferred size."""
    mixed: bool = False
    """Calls of different keys may share a batch: an ensemble, whose steps cut their own."""

    @property
    def saturated(self) -> int:
        """Rows from which on waiting for more gains nothing."""
        return self.preferred[-1] if self.preferred else self.largest


ALONE = Policy()


def cut(waiting: Sequence[Waiting], now: float, policy: Policy) -> Cut:
    """The batch to start now. ``waiting`` holds only calls that are neither expired nor cancelled, oldest first."""
    if not waiting:
        return NOTHING
    if len(waiting) == 1 and not policy.delay_s:
        return ONE
    if policy.largest <= 1:
        return Cut(1)
    preferred = policy.preferred or (policy.largest,)
    rows = count = best = 0
    closed = False
    for call in waiting:
        if count:
            if rows + call.rows > policy.saturated and not best:
                best = count
            if rows + call.rows > policy.largest or not (policy.mixed or call.key == waiting[0].key):
                closed = True
                break
        rows += call.rows
        count += 1
        if rows in preferred:
            best = count
    due = waiting[0].queued_s + policy.delay_s
    late = policy.delay_s > 0 and now >= due
    if best and not late:
        return Cut(best)
    if closed or late or rows >= policy.saturated or policy.delay_s == 0:
        return Cut(count)
    return Cut(0, due)


def chunks(requests: Sequence[Request], policy: Policy) -> Iterator[Sequence[int]]:
    """Positions of ``requests``, in the runs in which a model takes a list that is already here: nothing to wait for, so
    neither preferred sizes nor delay matter, and calls of one key are joined wherever they stand in the list."""
    if policy.largest <= 1 or len(requests) == 1:
        yield from ((position,) for position in range(len(requests)))
        return
    groups: dict[Hashable, list[int]] = {}
    for position, request in enumerate(requests):
        groups.setdefault(key(request), []).append(position)
    for positions in groups.values():
        yield from _runs(((position, requests[position].rows) for position in positions), policy.largest)


def key(request: Request) -> Hashable:
    """What two calls must share to be joined: which inputs they carry, and each input's shape but for the batch dimension."""
    inputs = request.inputs
    if len(inputs) == 1:
        for name, array in inputs.items():
            return name, array.shape[1:]
    return frozenset((name, array.shape[1:]) for name, array in inputs.items())


def _runs(sized: Iterable[tuple[int, int]], largest: int) -> Iterator[Sequence[int]]:
    run: list[int] = []
    total = 0
    for position, size in sized:
        if run and total + size > largest:
            yield run
            run, total = [], 0
        run.append(position)
        total += size
    if run:
        yield run
