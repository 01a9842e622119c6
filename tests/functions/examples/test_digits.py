from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.examples import build, digits
from tests.functions.examples.driver import Driver

_, HELD_OUT = digits.split()


def share(condition: np.ndarray) -> Any:
    """In percent, and right within one point."""
    return pytest.approx(100 * condition.mean(), abs=1.0)


def test_719_digits_are_held_out() -> None:
    assert HELD_OUT.pixels.shape == (719, 64)
    assert (HELD_OUT.pixels.min(), HELD_OUT.pixels.max()) == (0.0, 1.0)


@pytest.mark.parametrize(("model", "accuracy"), [("digits_small", 91.8), ("digits_big", 99.2)])
def test_each_model_alone_is_as_accurate_as_expected(driver: Driver, model: str, accuracy: float) -> None:
    answer = driver.call(model, {"pixels": HELD_OUT.pixels})

    assert accuracy == share(answer["label"][:, 0] == HELD_OUT.labels)
    assert answer["probabilities"].shape == (719, 10)


@pytest.mark.parametrize(("careful", "accuracy", "escalated"), [(False, 97.1, 16.4), (True, 99.2, 64.5)])
def test_the_cascade_escalates_what_the_cheap_model_is_not_sure_of(
    repository: Path, careful: bool, accuracy: float, escalated: float
) -> None:
    driver = Driver(build.careful(repository), repository) if careful else Driver(repository)
    answer = driver.call("digits", {"pixels": HELD_OUT.pixels})

    assert accuracy == share(answer["label"][:, 0] == HELD_OUT.labels)
    assert escalated == share(answer["escalated"])


def test_a_batch_costs_one_call_of_each_model_at_most(driver: Driver) -> None:
    small = driver.call("digits_small", {"pixels": HELD_OUT.pixels})
    sure = small["probabilities"].max(axis=1) >= 0.30
    driver.called.clear()
    driver.call("digits", {"pixels": HELD_OUT.pixels[:64]})

    assert driver.called == ["digits", "digits_small", "digits_big"]
    driver.called.clear()
    driver.call("digits", {"pixels": HELD_OUT.pixels[sure][:64]})
    assert driver.called == ["digits", "digits_small"]


def test_requests_of_one_batch_get_their_own_rows_back(driver: Driver) -> None:
    whole = driver.call("digits", {"pixels": HELD_OUT.pixels[:7]})
    parts = driver.batch("digits", [{"pixels": HELD_OUT.pixels[start:end]} for start, end in ((0, 1), (1, 4), (4, 7))])

    assert [1, 3, 3] == [len(part["label"]) for part in parts]
    for name in ("label", "probability", "escalated"):
        assert whole[name].tolist() == np.concatenate([part[name] for part in parts]).tolist()
