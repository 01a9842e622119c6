"""The story of a day, then the laws."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.fleet.decide import STABLE_S, Decision, Memory, Policy, decide
from workers.fleet.window import Window


@dataclass
class Day:
    """One version, second by second: what is decided is ready a second later."""

    policy: Policy
    now: float = 0.0
    window: Window = field(default_factory=Window)
    memory: Memory = field(default_factory=Memory)
    quiet_s: float = 0.0
    seen: bool = False
    last: Decision | None = None

    def pass_(self, seconds: int, load: float | None) -> Day:
        """So many seconds with this load; None: nothing is observed."""
        for _ in range(seconds):
            self.now += 1.0
            if load is not None:
                self.quiet_s = 0.0 if load else self.quiet_s + 1.0
                self.seen = self.seen or load > 0
                self.window = self.window.add(self.now, load, STABLE_S, self.quiet_s if self.seen else None)
            self.last = decide(self.policy, self.window, self.memory.count, self.memory, self.now)
            self.memory = self.last.memory
        return self

    def expect(self, count: int, reason: str = "") -> None:
        assert self.last is not None
        assert (count, True) == (self.last.count, reason in self.last.reason), f"at {self.now:g} s: {self.last}"


def test_the_story_of_a_day() -> None:
    day = Day(Policy(min=0, max=10, target=4.0, idle_s=60.0))
    day.pass_(30, 0.0).expect(0, "no call for 60 s")
    day.pass_(1, 1.0).expect(1)  # the first call
    day.pass_(29, 2.0).expect(1, "4 for each replica")
    day.pass_(6, 40.0).expect(10, "panic")  # noon: the mean over 6 s decides, not that over a minute
    day.pass_(10, 40.0).expect(10)
    day.pass_(30, 12.0).expect(10, "no fewer")  # still within a minute of the panic
    day.pass_(90, 12.0).expect(4, "12 calls over 60 s")
    day.pass_(40, 0.0).expect(2)  # the window empties, the last replica stays
    day.pass_(19, 0.0).expect(1)
    day.pass_(1, 0.0).expect(0, "no call for 60 s")
    day.pass_(1, 5.0).expect(1)


def test_a_burst_beyond_the_maximum_is_cut_there_and_says_so() -> None:
    Day(Policy(max=3, target=1.0)).pass_(6, 50.0).expect(3, "50 would be over max, which is 3")


def test_a_minimum_is_kept_without_any_call() -> None:
    Day(Policy(min=2, max=4)).pass_(1, 0.0).expect(2, "min is 2")
    Day(Policy(min=2, max=4)).pass_(1, None).expect(2, "min is 2")


def test_without_observations_nothing_changes() -> None:
    day = Day(Policy(max=10, target=1.0)).pass_(70, 5.0)
    day.expect(5)
    day.pass_(300, None).expect(5, "nothing was observed")


def test_when_observations_stop_short_of_a_minute_nothing_goes_down() -> None:
    day = Day(Policy(max=10, target=1.0)).pass_(60, 5.0).pass_(10, 1.0)
    day.pass_(10, None).expect(5, "no fewer")


def test_a_long_idle_time_keeps_the_last_replica_and_a_short_one_lets_it_go_at_once() -> None:
    patient = Day(Policy(max=4, idle_s=300.0)).pass_(10, 1.0)
    patient.pass_(299, 0.0).expect(1)
    patient.pass_(1, 0.0).expect(0)
    brisk = Day(Policy(max=4, idle_s=2.0)).pass_(10, 1.0)
    brisk.pass_(1, 0.0).expect(1)
    brisk.pass_(1, 0.0).expect(0, "no call for 2 s")


def test_a_running_call_is_never_idle() -> None:
    Day(Policy(max=1, idle_s=0.0)).pass_(120, 1.0).expect(1)


@pytest.mark.parametrize("load", [3.9, 4.0, 4.1])
def test_a_load_at_the_edge_of_two_counts_does_not_make_them_alternate(load: float) -> None:
    day = Day(Policy(max=10, target=2.0)).pass_(150, load)
    counts = set()
    for second in range(120):
        day.pass_(1, load + (0.3 if second % 2 else -0.3))
        counts.add(day.memory.count)

    assert 1 == len(counts)


policies = st.builds(
    lambda least, more, target, idle_s: Policy(least, max(1, least + more), target, idle_s),
    st.integers(0, 5),
    st.integers(0, 20),
    st.floats(0.25, 64.0),
    st.floats(0.0, 600.0),
)
loads = st.lists(st.one_of(st.none(), st.floats(0.0, 500.0)), min_size=1, max_size=130)


@settings(deadline=None)
@given(policies, loads)
def test_every_decision_lies_within_its_bounds_and_gives_a_reason(policy: Policy, loads: list[float | None]) -> None:
    day = Day(policy)
    for load in loads:
        day.pass_(1, load)
        assert day.last is not None
        assert policy.min <= day.last.count <= policy.max
        assert day.last.reason
        assert day.last.count == day.memory.count


@settings(deadline=None)
@given(policies, st.lists(st.floats(0.1, 200.0), min_size=1, max_size=70), st.floats(1.0, 3.0), st.integers(0, 20), st.integers(0, 20))
def test_more_load_never_means_fewer_replicas(policy: Policy, loads: list[float], factor: float, before: int, ready: int) -> None:
    less, more = Window(), Window()
    for second, load in enumerate(loads):
        less, more = less.add(second, load, STABLE_S, 0.0), more.add(second, load * factor, STABLE_S, 0.0)
    now, memory = float(len(loads)), Memory(before)

    assert decide(policy, less, ready, memory, now).count <= decide(policy, more, ready, memory, now).count


@settings(deadline=None, max_examples=20)
@given(policies, st.floats(0.0, 300.0), loads)
def test_under_a_constant_load_the_count_comes_to_rest(policy: Policy, load: float, history: list[float | None]) -> None:
    day = Day(policy)
    for before in history:
        day.pass_(1, before)
    day.pass_(int(STABLE_S * 2 + policy.idle_s) + 2, load)
    rest = day.memory.count
    for _ in range(30):
        assert rest == day.pass_(1, load).memory.count


@settings(deadline=None, max_examples=20)
@given(st.floats(1.0, 100.0), st.floats(0.05, 2.0), st.integers(1, 8))
def test_a_queue_that_replicas_empty_does_not_make_them_swing(arrivals: float, service_s: float, lanes: int) -> None:
    """Closed loop: the load falls when there are replicas, which must not take them away again."""
    policy = Policy(max=500, target=float(lanes))
    day, queue, counts = Day(policy), 0.0, []
    for _ in range(400):
        served = min(queue + arrivals, day.memory.count * lanes / service_s)
        queue = queue + arrivals - served
        counts.append(day.pass_(1, queue + served * service_s).memory.count)

    assert max(counts[-120:]) - min(counts[-120:]) <= 1
