"""Ensembles over real Python members, run in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.errors import Cancelled, DeadlineExceeded, ModelInvalidArgument
from functions.protocol.values import Request
from tests.workers.process.bundles import config, ensemble, member
from tests.workers.process.closures import loaded
from workers.process.spec import MemberSpec

ADDS = """
    import json
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            self.step = float(json.loads(args["model_config"])["parameters"]["add"]["string_value"])

        def execute(self, requests):
            answers = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                if (x < 0).any():
                    answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)))
                    continue
                x += self.step
                tensors = [] if (x > 1000).any() else [pb_utils.Tensor("Y", x)]
                answers.append(pb_utils.InferenceResponse([*tensors, pb_utils.Tensor("COUNT", x * 0 + len(requests))]))
            return answers
"""
ONE = {"X": ("TYPE_FP32", [1])}


def adds(folder: Path, name: str, add: float, **more: Any) -> MemberSpec:
    outputs = {"Y": ("TYPE_FP32", [1]), "COUNT": ("TYPE_FP32", [1])}
    made = config(name, batch=4, inputs=ONE, outputs=outputs, parameters={"add": {"string_value": str(add)}}, **more)
    return member(folder, made, {"model.py": ADDS})


def chain(folder: Path, **outputs: tuple[str, list[int]]) -> list[MemberSpec]:
    """in → +1 → mid → +10 → out; ``seen`` tells how large the second step's batch was."""
    steps = [("one", {"X": "in"}, {"Y": "mid"}), ("ten", {"X": "mid"}, {"Y": "out", "COUNT": "seen"})]
    made = ensemble(
        "chain",
        steps,
        batch=4,
        inputs={"in": ("TYPE_FP32", [1])},
        outputs=outputs or {"out": ("TYPE_FP32", [1]), "mid": ("TYPE_FP32", [1]), "seen": ("TYPE_FP32", [1])},
    )
    root = member(folder, made, lock={"one": 1, "ten": 1})
    return [root, adds(folder, "one", 1), adds(folder, "ten", 10, dynamic_batching={"preferred_batch_size": [4]})]


def value(number: float, *outputs: str, **more: Any) -> Request:
    return Request({"in": np.full((1, 1), number, np.float32)}, outputs, **more)


def test_a_list_flows_through_as_one_and_each_step_cuts_it_by_its_own_rules(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        answers = graph.ask(*[value(number) for number in range(6)])

        assert [11, 12, 13, 14, 15, 16] == [answer.outputs["out"][0, 0] for answer in answers]
        assert [1, 2, 3, 4, 5, 6] == [answer.outputs["mid"][0, 0] for answer in answers]
        assert [4, 4, 4, 4, 2, 2] == [answer.outputs["seen"][0, 0] for answer in answers]
        assert (6, 2) == (graph.counters("one")["nv_inference_exec_count"], graph.counters("ten")["nv_inference_exec_count"])
        whole = graph.counters("chain")
        parts = [graph.counters(name) for name in ("one", "ten")]
        assert (6, 6) == (whole["nv_inference_request_success"], whole["nv_inference_count"])
        assert (
            pytest.approx(sum(part["nv_inference_compute_infer_duration_us"] for part in parts))
            == (whole["nv_inference_compute_infer_duration_us"])
        )


def test_steps_that_no_wanted_output_needs_are_not_run(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        (answer,) = graph.ask(value(0, "mid"))

        assert ["mid"] == list(answer.outputs)
        assert 0 == graph.counters("ten")["nv_inference_exec_count"]


def test_a_steps_error_keeps_its_kind_and_gets_the_ensembles_name_and_stops_only_its_request(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        failed, good = graph.ask(value(-5), value(1))

        assert isinstance(failed.error, ModelInvalidArgument)
        assert "in ensemble 'chain', negative" == failed.error.message
        assert 12 == good.outputs["out"][0, 0]
        assert 1 == graph.counters("one")["nv_inference_request_failure/BACKEND"]
        assert 2 == graph.counters("chain")["nv_inference_request_failure/OTHER"]


def test_an_output_that_a_middle_step_leaves_out_is_an_error_that_names_both_steps(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        (answer,) = graph.ask(value(1000, "out", id="q7"))

        assert (
            "in ensemble 'chain', [request id: q7] unexpected deadlock, at least one output is not set while no more ensemble steps can "
            "be made: "
            "step 'ten' was not run, because step 'one' left out 'mid'"
        ) == answer.error.message


def test_an_output_that_the_last_step_leaves_out_is_missing(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        (answer,) = graph.ask(value(995))

        assert answer.error is None
        assert ["mid", "seen"] == sorted(answer.outputs)


def test_expired_and_cancelled_requests_take_no_further_step(tmp_path: Path) -> None:
    with loaded(tmp_path, chain(tmp_path)) as graph:
        late, unwanted = graph.ask(value(1, deadline=time.monotonic() - 1), value(1, cancelled=lambda: True))

        assert isinstance(late.error, DeadlineExceeded)
        assert isinstance(unwanted.error, Cancelled)
        assert 0 == graph.counters("one")["nv_inference_exec_count"]


def test_a_tensor_that_several_read_is_written_to_by_none(tmp_path: Path) -> None:
    steps = [("one", {"X": "in"}, {"Y": "a"}), ("ten", {"X": "in"}, {"Y": "b"})]
    made = ensemble("fork", steps, batch=4, inputs={"in": ("TYPE_FP32", [1])}, outputs={"a": ("TYPE_FP32", [1]), "b": ("TYPE_FP32", [1])})
    members = [member(tmp_path, made, lock={"one": 1, "ten": 1}), adds(tmp_path, "one", 1), adds(tmp_path, "ten", 10)]
    with loaded(tmp_path, members) as graph:
        (answer,) = graph.ask(value(0))

        assert (1, 10) == (answer.outputs["a"][0, 0], answer.outputs["b"][0, 0])


def test_a_step_that_gets_what_it_did_not_declare_refuses_it_with_the_ensembles_name(tmp_path: Path) -> None:
    members = chain(tmp_path)
    members[1].config["output"][0]["dims"] = [1]
    wide = Request({"in": np.zeros((5, 1), np.float32)}, ())
    members[0].config["max_batch_size"] = 8  # as a graph check would never let it through
    with loaded(tmp_path, members) as graph:
        (answer,) = graph.ask(wide)

        assert "in ensemble 'chain', [request id: <id_unknown>] inference request batch-size must be <= 4 for 'one'" == answer.error.message


def test_two_versions_of_one_function_share_a_closure_each_by_its_own_lock(tmp_path: Path) -> None:
    old = adds(tmp_path, "one", 1)
    new_config = {**old.config, "parameters": {"add": {"string_value": "100"}}}
    new = member(tmp_path, new_config, {"model.py": ADDS}, version=2)
    inner_config = ensemble(
        "inner", [("one", {"X": "X"}, {"Y": "Y"})], batch=4, inputs={"X": ("TYPE_FP32", [1])}, outputs={"Y": ("TYPE_FP32", [1])}
    )
    inner = member(tmp_path, inner_config, lock={"one": 1})
    steps = [("inner", {"X": "in"}, {"Y": "mid"}), ("one", {"X": "mid"}, {"Y": "out"})]
    outer_config = ensemble("outer", steps, batch=4, inputs={"in": ("TYPE_FP32", [1])}, outputs={"out": ("TYPE_FP32", [1])})
    with loaded(tmp_path, [member(tmp_path, outer_config, lock={"inner": 1, "one": 2}), inner, old, new]) as graph:
        (answer,) = graph.ask(value(0))

        assert 101 == answer.outputs["out"][0, 0]


def test_an_optional_input_that_is_absent_leaves_the_steps_optional_input_out(tmp_path: Path) -> None:
    source = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            given = [np.array([[len(request.inputs())]], np.float32) for request in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", count)]) for count in given]
    """
    inner = config("m", batch=4, inputs={"A": ("TYPE_FP32", [1]), "B": ("TYPE_FP32", [1])}, outputs={"Y": ("TYPE_FP32", [1])})
    inner["input"][1]["optional"] = True
    outer = ensemble(
        "e",
        [("m", {"A": "a", "B": "b"}, {"Y": "out"})],
        batch=4,
        inputs={"a": ("TYPE_FP32", [1]), "b": ("TYPE_FP32", [1])},
        outputs={"out": ("TYPE_FP32", [1])},
    )
    outer["input"][1]["optional"] = True
    one = np.ones((1, 1), np.float32)
    with loaded(tmp_path, [member(tmp_path, outer, lock={"m": 1}), member(tmp_path, inner, {"model.py": source})]) as graph:
        some, both = graph.ask(Request({"a": one}, ()), Request({"a": one, "b": one}, ()))

        assert (1, 2) == (some.outputs["out"][0, 0], both.outputs["out"][0, 0])
