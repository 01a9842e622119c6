import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.process.turnstile import Turnstile


@given(st.permutations(range(6)))
def test_whoever_comes_first_they_leave_in_order(arrivals: list[int]) -> None:
    turnstile = Turnstile()
    left: list[int] = []
    for number in arrivals:
        turnstile.leave(number, lambda number=number: left.append(number))

    assert list(range(6)) == left


@pytest.mark.parametrize(("arrived", "expected"), [([0], [0]), ([1], []), ([1, 0, 3], [0, 1])])
def test_nobody_waits_for_later_ones(arrived: list[int], expected: list[int]) -> None:
    turnstile = Turnstile()
    left: list[int] = []
    for number in arrived:
        turnstile.leave(number, lambda number=number: left.append(number))

    assert expected == left
