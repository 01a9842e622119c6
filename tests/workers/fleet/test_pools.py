"""The order of the queue, as hypothesis shuffles it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from functions.names import Ref
from workers.fleet.call import Call
from workers.fleet.pools import Pool


def call(number: int) -> Call:
    made = Call(Ref("f", 1), b"", deadline=0.0, on_reply=lambda *_: None, on_failure=lambda *_: None)
    made.number = number
    return made


@settings(deadline=None)
@given(st.permutations(range(6)), st.integers(0, 6))
def test_calls_that_come_back_in_any_order_go_before_all_others_in_order_of_arrival(returned: list[int], fresh: int) -> None:
    pool = Pool(Ref("f", 1))
    for number in range(6, 6 + fresh):
        pool.put(call(number))
    for number in returned:
        pool.put_back(call(number))

    assert list(range(6 + fresh)) == [pool.take().number for _ in range(pool.waiting)]


@settings(deadline=None)
@given(st.sets(st.integers(0, 7)))
def test_calls_leave_from_the_middle_without_disturbing_the_order(dropped: set[int]) -> None:
    pool = Pool(Ref("f", 1))
    calls = [call(number) for number in range(8)]
    for each in calls[:3]:
        pool.put_back(each)
    for each in calls[3:]:
        pool.put(each)
    for number in dropped:
        pool.drop(calls[number])

    assert [number for number in range(8) if number not in dropped] == [pool.take().number for _ in range(pool.waiting)]
