"""How many replicas a version should have. Pure: policy, what was seen, what was decided before, time → a count with its reason.

After Knative's autoscaler. The mean load over 60 s decides. If the mean over 6 s asks for twice what is ready, it panics: for the
next 60 s the mean over 6 s decides if it asks for more, and nothing goes down. Nothing is decided from nothing: without
observations the count stays. With no call for ``idle_s`` the count is ``min``; until then the last replica stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from workers.fleet.window import Window

STABLE_S = 60.0
PANIC_S = 6.0
PANIC_AT = 2.0
SLACK = 0.9
"""Fewer replicas only when they would be at most this full, so that a load at the edge of two counts does not make them alternate."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``0 <= min <= max``, ``max >= 1``, ``target > 0``, ``idle_s >= 0``."""

    min: int = 0
    max: int = 1
    target: float = 1.0
    """Calls queued or running that one replica should have."""
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision leaves for the next."""

    count: int = 0
    panic_until: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    count: int
    reason: str
    memory: Memory


def decide(policy: Policy, window: Window, ready: int, memory: Memory, now: float) -> Decision:
    """The count to hold from now on. ``ready`` is how many replicas take calls already."""
    stable, recent = window.mean(now, STABLE_S), window.mean(now, PANIC_S)
    if stable is None:
        return _within(policy, memory.count, "nothing was observed, so nothing changes", memory.panic_until)
    idle_for = now - window.active_at if window.active_at is not None else policy.idle_s
    if idle_for >= policy.idle_s and not window.samples[-1].load:
        return _within(policy, 0, f"no call for {policy.idle_s:g} s", None)
    wanted = max(1, _needed(stable, policy.target, memory.count))
    reason = f"{stable:.3g} calls over {STABLE_S:g} s, {policy.target:g} for each replica"
    if recent is None:
        return _within(
            policy, max(wanted, memory.count), f"{reason}; nothing was observed for {PANIC_S:g} s, so no fewer", memory.panic_until
        )
    urgent = ceil(recent / policy.target)
    panic_until = now + STABLE_S if urgent >= PANIC_AT * max(1, ready) else memory.panic_until
    if panic_until is None or panic_until <= now:
        return _within(policy, wanted, reason, None)
    if urgent > max(wanted, memory.count):
        return _within(policy, urgent, f"panic: {recent:.3g} calls over {PANIC_S:g} s with {ready} ready", panic_until)
    return _within(policy, max(wanted, memory.count), f"panic for {panic_until - now:.3g} s more, so no fewer", panic_until)


def _needed(load: float, target: float, count: int) -> int:
    if load > count * target:
        return ceil(load / target)
    if load <= (count - 1) * target * SLACK:
        return ceil(load / (target * SLACK))
    return count


def _within(policy: Policy, wanted: int, reason: str, panic_until: float | None) -> Decision:
    count = min(max(wanted, policy.min), policy.max)
    if count > wanted:
        reason = f"{reason}; min is {policy.min}"
    elif count < wanted:
        reason = f"{reason}; {wanted} would be over max, which is {policy.max}"
    return Decision(count, reason, Memory(count, panic_until))
