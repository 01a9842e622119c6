from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from functions.examples import digits, exam
from functions.examples.client import Answer
from functions.examples.digits import Digits
from tests.functions.examples.driver import Driver

_, HELD_OUT = digits.split()
SOME = Digits(HELD_OUT.pixels[:40], HELD_OUT.labels[:40])


class Local:
    """Answers like a platform whose every model takes 100 µs."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def infer(self, name: str, inputs: Mapping[str, np.ndarray], version: str) -> Answer:
        return Answer(self.driver.call(name, inputs), int(version or 1), 0.004)

    def counters(self) -> dict[tuple[str, str], float]:
        runs = Counter(self.driver.called)
        return {(exam.COMPUTE, model): 100.0 * count for model, count in runs.items()} | {
            (exam.ROWS, model): float(count) for model, count in runs.items()
        }


@pytest.fixture
def local(repository: Path) -> Local:
    return Local(Driver(repository))


def test_a_digit_costs_the_cheap_model_and_its_share_of_the_expensive_one(local: Local) -> None:
    cascade = exam.examine(local, SOME, "digits", "7")

    assert cascade.version == 7
    assert cascade.p50_ms == pytest.approx(4.0)
    assert cascade.escalation is not None
    assert cascade.escalations > 0
    assert cascade.escalations == cascade.expensive
    assert cascade.model_us == pytest.approx(100 + cascade.escalation)
    assert cascade.accuracy == 100 * np.mean(cascade.labels == SOME.labels)


def test_a_function_without_a_choice_escalates_nothing(local: Local) -> None:
    small = exam.examine(local, SOME, "digits_small")

    assert (small.escalated, small.escalation, small.model_us) == (None, None, 100.0)


def test_exams_agree_when_every_answer_and_every_escalation_is_the_same(local: Local) -> None:
    one = exam.examine(local, SOME, "digits")
    other = exam.examine(local, SOME, "digits")
    assert one.escalated is not None

    assert one.agrees(other)
    assert not one.agrees(replace(other, labels=other.labels + 1))
    assert not one.agrees(replace(other, escalated=~one.escalated))


def test_the_table_has_a_line_an_exam() -> None:
    shown = io.StringIO()
    done = exam.Exam(1, np.array([3]), np.array([True]), 97.1, 0.5, 20.0, 1)
    Console(file=shown, width=80).print(exam.table({"digits @ 1": done, "digits_big": replace(done, escalated=None)}))

    assert [line.split() for line in shown.getvalue().splitlines()[1:]] == [
        ["digits", "@", "1", "97.1", "%", "100.0", "%", "20", "µs", "0.50", "ms"],
        ["digits_big", "97.1", "%", "20", "µs", "0.50", "ms"],
    ]
