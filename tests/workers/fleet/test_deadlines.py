from __future__ import annotations

import asyncio

import pytest

from functions.names import Ref
from workers.fleet.call import Call
from workers.fleet.deadlines import COARSE_S, FINE_S, Deadlines


class Clock:
    """A loop as far as deadlines need it: time moves when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> Timer:
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    @property
    def armed(self) -> list[Timer]:
        return [timer for timer in self.timers if timer.live]

    def to(self, now: float) -> None:
        self.now = now
        for timer in self.armed:
            if timer.when <= now:
                timer.live = False
                timer.callback()  # type: ignore[operator]


class Timer:
    def __init__(self, when: float, callback: object) -> None:
        self.when, self.callback, self.live = when, callback, True

    def cancel(self) -> None:
        self.live = False


def call(deadline: float) -> Call:
    made = Call(Ref("f", 1), b"", deadline=deadline, on_reply=lambda *_: None, on_failure=lambda *_: None)
    made.bucket = None
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def deadlines(clock: Clock, due: list[Call]) -> Deadlines:
    return Deadlines(clock, due.append)  # type: ignore[arg-type]


@pytest.mark.parametrize(("after_s", "width_s"), [(0.001, FINE_S), (1.0, FINE_S), (4.99, FINE_S), (30.0, COARSE_S), (300.0, COARSE_S)])
def test_no_call_expires_early_and_none_more_than_a_bucket_late(clock: Clock, after_s: float, width_s: float) -> None:
    due: list[Call] = []
    standing = deadlines(clock, due)
    late = call(clock.now + after_s)
    standing.add(late, clock.now)
    clock.to(late.deadline - 1e-6)

    assert [] == due

    clock.to(late.deadline + width_s + 1e-6)

    assert [late] == due


def test_many_calls_share_one_timer(clock: Clock) -> None:
    standing = deadlines(clock, [])
    for number in range(1000):
        standing.add(call(clock.now + 300.0 + number / 1000), clock.now)

    assert 1 == len(clock.armed)
    assert len(clock.timers) <= 3


def test_an_earlier_deadline_sets_the_timer_earlier(clock: Clock) -> None:
    due: list[Call] = []
    standing = deadlines(clock, due)
    slow, quick = call(clock.now + 100.0), call(clock.now + 0.1)
    standing.add(slow, clock.now)
    standing.add(quick, clock.now)
    clock.to(1000.2)

    assert [quick] == due

    clock.to(1101.0)

    assert [quick, slow] == due


def test_a_call_that_was_removed_does_not_expire_and_empty_buckets_are_skipped(clock: Clock) -> None:
    due: list[Call] = []
    standing = deadlines(clock, due)
    gone, stays = call(clock.now + 0.1), call(clock.now + 0.5)
    standing.add(gone, clock.now)
    standing.add(stays, clock.now)
    standing.remove(gone)
    standing.remove(gone)
    clock.to(1000.2)

    assert [] == due
    assert 1 == len(clock.armed)

    clock.to(1001.0)

    assert [stays] == due
    assert [] == clock.armed


def test_a_callback_may_take_out_others_of_its_bucket_and_put_in_new_ones(clock: Clock) -> None:
    due: list[Call] = []
    calls = [call(clock.now + 0.1) for _ in range(3)]

    def on_due(late: Call) -> None:
        due.append(late)
        for other in calls:
            standing.remove(other)
        if len(due) == 1:
            standing.add(call(clock.now + 0.1), clock.now)

    standing = Deadlines(clock, on_due)  # type: ignore[arg-type]
    for each in calls:
        standing.add(each, clock.now)
    clock.to(1000.2)

    assert 1 == len(due)

    clock.to(1000.4)

    assert 2 == len(due)


async def test_it_runs_on_a_real_loop() -> None:
    loop = asyncio.get_running_loop()
    expired: asyncio.Future[Call] = loop.create_future()
    standing = Deadlines(loop, expired.set_result)
    late = call(loop.time() + 0.01)
    standing.add(late, loop.time())

    assert late is await asyncio.wait_for(expired, 5)
    assert loop.time() >= late.deadline
    standing.close()
