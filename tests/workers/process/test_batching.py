"""The batching rules as a table of situations: who waits, since when, and what is started."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.protocol.values import Request
from workers.process.batching import ALONE, Cut, Policy, chunks, cut, key


@dataclass
class Waits:
    rows: int = 1
    key: object = "a"
    queued_s: float = 0.0


def waits(*sizes: int) -> list[Waits]:
    return [Waits(size) for size in sizes]


UP_TO_8 = Policy(8, (8,))
PATIENT = Policy(8, (4, 8), 0.010)

SITUATIONS = [
    ("nobody waits", [], 0.0, UP_TO_8, Cut(0)),
    ("without batching the first goes alone", waits(1, 1), 0.0, ALONE, Cut(1)),
    ("without a delay all that wait go", waits(1, 1, 1), 0.0, UP_TO_8, Cut(3)),
    ("a batch is never larger than the largest", waits(*[1] * 20), 0.0, UP_TO_8, Cut(8)),
    ("a call is never split", waits(5, 5), 0.0, UP_TO_8, Cut(1)),
    ("a call larger than all preferred sizes goes", waits(6), 0.0, Policy(8, (4,), 0.010), Cut(1)),
    ("a preferred size goes at once", waits(1, 1, 1, 1), 0.0, PATIENT, Cut(4)),
    ("the larger of two preferred sizes goes", waits(*[1] * 9), 0.0, PATIENT, Cut(8)),
    ("with a preferred size reached the rest waits", waits(*[1] * 6), 0.0, PATIENT, Cut(4)),
    ("less than a preferred size waits for the oldest's delay", waits(1, 1), 0.004, PATIENT, Cut(0, 0.010)),
    ("when the delay is over all go", waits(1, 1), 0.010, PATIENT, Cut(2)),
    ("when the delay is over more than the preferred size goes", waits(*[1] * 6), 0.011, PATIENT, Cut(6)),
    ("a batch that cannot grow does not wait", waits(3, 6), 0.0, PATIENT, Cut(1)),
    ("another shape ends the batch", [Waits(), Waits(key="b"), Waits()], 0.0, UP_TO_8, Cut(1)),
    ("another shape behind means no reason to wait", [Waits(), Waits(key="b")], 0.0, PATIENT, Cut(1)),
    ("an ensemble's door mixes shapes", [Waits(), Waits(key="b")], 0.0, Policy(8, (8,), mixed=True), Cut(2)),
    ("empty preferred means the largest", waits(*[1] * 8), 0.0, Policy(8, (), 1.0), Cut(8)),
]


@pytest.mark.parametrize(("waiting", "now", "policy", "expected"), [case[1:] for case in SITUATIONS], ids=[case[0] for case in SITUATIONS])
def test_the_batch_of_a_situation(waiting: list[Waits], now: float, policy: Policy, expected: Cut) -> None:
    assert expected == cut(waiting, now, policy)


@given(
    st.lists(st.integers(1, 8), max_size=30),
    st.integers(1, 8),
    st.lists(st.integers(1, 8), max_size=3),
    st.sampled_from([0.0, 0.5]),
    st.floats(0, 2),
)
def test_a_cut_fits_and_somebody_always_goes_in_the_end(
    sizes: list[int], largest: int, preferred: list[int], delay: float, now: float
) -> None:
    policy = Policy(largest, tuple(sorted({size for size in preferred if size <= largest})), delay)
    waiting = waits(*[min(size, largest) for size in sizes])

    taken, until = cut(waiting, now, policy)

    assert sum(call.rows for call in waiting[:taken]) <= max(largest, 1)
    assert bool(waiting) == (taken > 0 or until is not None)
    assert until is None or until > now


def request(*shape: int, name: str = "x") -> Request:
    return Request({name: np.zeros(shape, np.float32)}, ("y",))


def test_a_list_inside_the_graph_is_run_in_full_batches_of_one_shape() -> None:
    requests = [request(1, 2), request(1, 3), request(1, 2), request(2, 2), request(1, 2)]

    assert [[0, 2], [3, 4], [1]] == [list(run) for run in chunks(requests, Policy(3))]


def test_a_list_for_a_model_without_batching_is_run_one_by_one() -> None:
    assert [[0], [1]] == [list(run) for run in chunks([request(1, 2), request(1, 2)], ALONE)]


def test_calls_with_other_optional_inputs_do_not_join() -> None:
    both = Request({"a": np.zeros((1, 2)), "b": np.zeros((1, 2))}, ())

    assert key(both) != key(request(1, 2, name="a"))
    assert 3 == request(3, 2).rows
    assert 1 == Request({}, ()).rows
