"""A bucket of calls: moments and answers."""

import pytest

from workers.fleet.allowance import Allowance


def taken(rate: float, moments: list[float]) -> list[bool]:
    allowance = Allowance(rate, moments[0])
    return [allowance.take(moment) for moment in moments]


@pytest.mark.parametrize(
    ("rate", "moments", "expected"),
    [
        (2, [0, 0, 0], [True, True, False]),
        (2, [0, 0, 0, 0.5, 0.5], [True, True, False, True, False]),
        (2, [0, 0, 60, 60, 60], [True, True, True, True, False]),
        (0.5, [0, 1, 2, 3, 4], [True, False, True, False, True]),
        (0.1, [0, 9.9, 10.1], [True, False, True]),
    ],
)
def test_as_many_as_the_rate_come_in(rate: float, moments: list[float], expected: list[bool]) -> None:
    assert expected == taken(rate, moments)


def test_in_the_long_run_the_rate_is_kept() -> None:
    moments = [step / 1000 for step in range(60_000)]

    assert 60 * 7 + 7 == pytest.approx(sum(taken(7, moments)), abs=1)
