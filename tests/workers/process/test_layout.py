import pytest

from functions.names import Ref
from tests.workers.process.bundles import config, ensemble
from workers.process.layout import layout, shares

PYTHON2 = config("p", count=2, batch=4)
ONNX3 = config("o", backend="onnxruntime", count=3, batch=8)
STEPS = [("p", {"IN": "IN"}, {"OUT": "mid"}), ("o", {"IN": "mid"}, {"OUT": "OUT"})]


def test_a_python_instance_is_a_lane_and_a_native_one_a_thread_of_it() -> None:
    found = layout({Ref("e", 1): ensemble("e", STEPS, batch=4), Ref("p", 1): PYTHON2, Ref("o", 1): ONNX3})

    assert 2 == found.lanes
    assert {Ref("e", 1): 2, Ref("p", 1): 1, Ref("o", 1): 2} == found.threads
    assert 2 * 4 * 2 == found.credit


def test_a_native_root_has_one_lane_and_all_its_threads_there() -> None:
    found = layout({Ref("o", 1): ONNX3})

    assert (1, {Ref("o", 1): 3}, 2 * 8 * 3) == (found.lanes, found.threads, found.credit)


def test_a_model_without_batching_gets_two_calls_an_instance() -> None:
    assert 2 == layout({Ref("p", 1): config("p", count=5)}).credit


@pytest.mark.parametrize(("total", "links", "expected"), [(8, 1, [8]), (8, 3, [3, 3, 2]), (2, 3, [1, 1, 1]), (5, 0, [])])
def test_credit_is_divided_and_nobody_is_left_without(total: int, links: int, expected: list[int]) -> None:
    assert expected == shares(total, links)
