from __future__ import annotations

from workers.node.backoff import Backoff


def test_delays_grow_to_a_limit_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(first_s=1, factor=2, longest_s=5)

    assert [1, 2, 4, 5, 5] == [backoff.failed() for _ in range(5)]
    backoff.succeeded()
    assert 1 == backoff.failed()


def test_any_number_of_failures_can_be_counted() -> None:
    backoff = Backoff(failures=10_000)

    assert 10.0 == backoff.failed()
