"""Calls that a model makes while it runs, answered inside the process or out over the link."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.errors import DeadlineExceeded, ModelFailed, NotFound
from functions.protocol import frames
from functions.protocol.frames import Kind
from functions.protocol.values import Request
from tests.workers.process.bundles import config, ensemble, member
from tests.workers.process.closures import loaded
from tests.workers.process.driver import Replica, encode
from workers.process.spec import MemberSpec

ONE = {"X": ("TYPE_FP32", [1])}
OUT = {"Y": ("TYPE_FP32", [1])}

CALLER = """
    import asyncio
    import numpy as np
    import triton_python_backend_utils as pb_utils

    def ask(x, name, version=-1):
        return pb_utils.InferenceRequest(
            model_name=name, model_version=version, inputs=[pb_utils.Tensor("X", x)], requested_output_names=["Y"]
        )

    class TritonPythonModel:
        def execute(self, requests):
            return [self.one(request) for request in requests]

        def one(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            %s

    def passed_on(answer):
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(answer, "Y")])
"""

DOUBLES = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        buffer = None

        def execute(self, requests):
            answers = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                x *= 2
                self.buffer = x.copy() if self.buffer is None else self.buffer
                self.buffer[:] = x
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.buffer)]))
            return answers
"""


def caller(folder: Path, body: str, **more: Any) -> MemberSpec:
    return member(folder, config("caller", inputs=ONE, outputs=OUT), {"model.py": CALLER % body}, **more)


def doubles(folder: Path, **more: Any) -> MemberSpec:
    return member(folder, config("doubles", inputs=ONE, outputs=OUT), {"model.py": DOUBLES}, **more)


def value(number: float, **more: Any) -> Request:
    return Request({"X": np.array([number], np.float32)}, (), **more)


def answered(folder: Path, body: str, number: float = 3, **more: Any) -> Any:
    with loaded(folder, [caller(folder, body, lock={"doubles": 1}), doubles(folder)]) as graph:
        (answer,) = graph.ask(value(number, **more))
        return answer.error.message if answer.error is not None else answer.outputs["Y"].tolist()


def test_a_call_reaches_the_locked_version(tmp_path: Path) -> None:
    assert [6] == answered(tmp_path, 'return passed_on(ask(x, "doubles").exec())')


def test_a_call_may_name_the_locked_version(tmp_path: Path) -> None:
    assert [6] == answered(tmp_path, 'return passed_on(ask(x, "doubles", 1).exec())')


def test_a_call_may_not_name_another_version(tmp_path: Path) -> None:
    expected = "Model doubles - Error when running inference: version 2 was asked for, but caller@1 is locked to doubles@1"

    assert expected == answered(tmp_path, 'return passed_on(ask(x, "doubles", 2).exec())')


def test_a_callee_writes_neither_to_its_callers_tensor_nor_to_an_earlier_answer(tmp_path: Path) -> None:
    body = """first = ask(x, "doubles").exec().output_tensors()[0].as_numpy()
            second = ask(x + 1, "doubles").exec().output_tensors()[0].as_numpy()
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.concatenate([x, first, second]))])"""

    assert [3, 6, 8] == answered(tmp_path, body)


def test_gathered_calls_are_all_answered(tmp_path: Path) -> None:
    body = """async def both():
                return await asyncio.gather(*[ask(x + n, "doubles").async_exec() for n in range(5)])
            arrays = [answer.output_tensors()[0].as_numpy() for answer in asyncio.run(both())]
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.concatenate(arrays))])"""

    assert [6, 8, 10, 12, 14] == answered(tmp_path, body)


def test_a_malformed_call_is_an_answer_too(tmp_path: Path) -> None:
    expected = (
        "Model doubles - Error when running inference: [request id: <id_unknown>] unexpected shape for input 'X' for model 'doubles'. "
        "Expected [1], got [2]. "
    )

    assert expected == answered(tmp_path, 'return passed_on(ask(np.zeros(2, np.float32), "doubles").exec())')


def test_a_call_to_oneself_runs_nested(tmp_path: Path) -> None:
    body = """if x[0] >= 10:
                return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
            return passed_on(ask(x + 4, "caller").exec())"""

    assert [11] == answered(tmp_path, body)


def test_a_call_to_oneself_without_end_stops_at_the_depth_limit(tmp_path: Path) -> None:
    assert "calls are 8 deep already" in answered(tmp_path, 'return passed_on(ask(x, "caller").exec())')


def test_a_call_to_oneself_from_another_thread_is_an_error_and_no_deadlock(tmp_path: Path) -> None:
    assert "wait for each other for ever" in answered(tmp_path, 'return passed_on(asyncio.run(ask(x, "caller").async_exec()))')


def test_readiness_is_known_for_what_is_declared(tmp_path: Path) -> None:
    body = """ready = [pb_utils.is_model_ready("doubles"), pb_utils.is_model_ready("doubles", "1"), pb_utils.is_model_ready("doubles", "2")]
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(ready, np.float32))])"""

    assert [1, 1, 0] == answered(tmp_path, body)


def test_calls_are_refused_outside_of_execute(tmp_path: Path) -> None:
    source = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[]).exec()
    """
    made = member(tmp_path, config("m", inputs=ONE, outputs=OUT), {"model.py": source})
    with pytest.raises(Exception, match="BLS is only supported during the 'execute' function"), loaded(tmp_path, [made]):
        pass


def test_a_call_may_reach_an_ensemble(tmp_path: Path) -> None:
    graph = ensemble("graph", [("doubles", {"X": "X"}, {"Y": "Y"})], inputs=ONE, outputs=OUT)
    members = [
        caller(tmp_path, 'return passed_on(ask(x, "graph").exec())', lock={"graph": 1}),
        member(tmp_path, graph, lock={"doubles": 1}),
        doubles(tmp_path),
    ]
    with loaded(tmp_path, members) as loaded_graph:
        (answer,) = loaded_graph.ask(value(4))

        assert [8] == answer.outputs["Y"].tolist()


@pytest.fixture
def stranger(tmp_path: Path):
    """A replica whose model calls ``stranger``, which its lock does not name, twice at a time."""
    body = """async def both():
                return await asyncio.gather(*[ask(x + n, "stranger").async_exec() for n in range(2)])
            answers = asyncio.run(both())
            for answer in answers:
                if answer.has_error():
                    return passed_on(answer)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", sum(a.output_tensors()[0].as_numpy() for a in answers))])"""
    with Replica(tmp_path, [caller(tmp_path, body)]) as replica, replica.ready().link() as link:
        link.credit()
        yield link


def result(link: Any, id: int, array: np.ndarray) -> None:
    head, length = encode({"Y": array})
    body = head[:length].replace(b'"inputs"', b'"outputs"') + head[length:]
    link.socket.sendall(frames.result(id, len(body), length + 1) + body)


def test_an_undeclared_call_goes_out_over_the_link_and_two_are_out_at_a_time(stranger: Any) -> None:
    stranger.call({"X": np.array([5], np.float32)}, timeout_s=10)
    outcalls = [frames.read_outcall(memoryview(frame.payload)) for frame in [stranger.expect(Kind.OUTCALL) for _ in range(2)]]
    for id in (2, 1):
        result(stranger, id, np.array([id * 10], np.float32))
    answer = stranger.answer()

    assert [30] == answer.outputs["Y"].tolist()
    assert ["stranger", "stranger"] == [name for _, name, _, _ in outcalls]
    assert [1, 1] == [head.hops for head, _, _, _ in outcalls]
    assert all(0 < head.remaining_us <= 10_000_000 for head, _, _, _ in outcalls)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelFailed("boom"), "Model stranger - Error when running inference: boom"),
        (NotFound("no such thing"), "Failed for execute the inference request. Model 'stranger' is not ready."),
    ],
)
def test_a_failure_of_an_outcall_is_an_answer(stranger: Any, error: Any, expected: str) -> None:
    stranger.call({"X": np.array([5], np.float32)})
    for id in (1, 2):
        stranger.expect(Kind.OUTCALL)
        stranger.socket.sendall(frames.failure(id, error.wire, error.message))

    assert (ModelFailed.wire, expected) == stranger.answer().error


def test_an_outcall_that_is_not_answered_ends_at_the_deadline(stranger: Any) -> None:
    started = time.monotonic()
    stranger.call({"X": np.array([5], np.float32)}, timeout_s=0.2)
    for _ in range(2):
        stranger.expect(Kind.OUTCALL)

    assert "did not answer before the caller's deadline" in stranger.answer().error[1]
    assert 0.2 <= time.monotonic() - started < 5


def test_a_call_without_time_left_is_not_run(stranger: Any) -> None:
    stranger.call({"X": np.array([5], np.float32)}, timeout_s=0.000001)

    assert DeadlineExceeded.wire == stranger.answer().error[0]


def test_a_shared_callee_is_asked_by_its_locked_version_over_the_link(tmp_path: Path) -> None:
    root = caller(tmp_path, 'return passed_on(ask(x, "big").exec())', lock={"big": 4}, shared=("big",))
    with Replica(tmp_path, [root]) as replica, replica.ready().link() as link:
        link.call({"X": np.array([5], np.float32)})
        _, name, _, _ = frames.read_outcall(memoryview(link.expect(Kind.OUTCALL).payload))
        result(link, 1, np.array([7], np.float32))

        assert "big@4" == name
        assert [7] == link.answer().outputs["Y"].tolist()


def test_a_result_that_makes_no_sense_closes_the_link(stranger: Any) -> None:
    stranger.call({"X": np.array([5], np.float32)})
    stranger.expect(Kind.OUTCALL)
    stranger.expect(Kind.OUTCALL)
    stranger.socket.sendall(frames.result(1, 7) + b"nothing")

    assert stranger.closed()
