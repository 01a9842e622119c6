"""A replica as a router meets it: a real process at the other end of a real socket."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.errors import Cancelled, DeadlineExceeded, InvalidRequest, ModelFailed, ModelInvalidArgument, StartFailed
from functions.protocol import frames
from functions.protocol.frames import Kind
from tests.workers.process.bundles import IDENTITY, config, member
from tests.workers.process.driver import LIMIT_S, Link, Replica
from workers.process.spec import MemberSpec

X = np.arange(16, dtype=np.float32)[None]

GATED = """
    import os, time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            self.folder = os.path.dirname(args["model_repository"])

        def execute(self, requests):
            open(f"{self.folder}/inside", "w").close()
            while not os.path.exists(f"{self.folder}/gate"):
                if any(request.is_cancelled() for request in requests):
                    return [pb_utils.InferenceResponse(error=pb_utils.TritonError("saw it", pb_utils.TritonError.CANCELLED))]
                time.sleep(0.001)
            size = np.full((1, 16), len(requests), np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", size)]) for _ in requests]

        def finalize(self):
            print("finalized")
"""


def batching(name: str = "m", batch: int = 8, **more: Any) -> dict[str, Any]:
    return config(name, batch=batch, dynamic_batching={"preferred_batch_size": [batch]}, **more)


@pytest.fixture
def identity(tmp_path: Path) -> MemberSpec:
    return member(tmp_path, batching(), {"model.py": IDENTITY})


class Gate:
    """A replica whose model stays in execute until the gate opens."""

    def __init__(self, tmp_path: Path, **spec: Any) -> None:
        made = member(tmp_path, batching(), {"model.py": GATED})
        self._folder = Path(made.model_dir).parent
        self.replica = Replica(tmp_path, [made], **spec)

    def inside(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not (self._folder / "inside").exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def open(self) -> None:
        (self._folder / "gate").touch()


@pytest.fixture
def gate(tmp_path: Path):
    made = Gate(tmp_path)
    with made.replica:
        made.replica.ready()
        yield made


def test_it_tells_its_states_and_phases_and_answers(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as link:
        answer = link.ask({"IN": X}, id="q1")

        assert X.tolist() == answer.outputs["OUT"].tolist()
        assert ("q1", "m", "1") == (answer.header["id"], answer.header["model_name"], answer.header["model_version"])
        assert ["loading", "warming", "ready"] == [line["state"] for line in replica.lines if "state" in line]
        assert ["imported", "loaded", "warmed"] == [line["phase"] for line in replica.lines if "phase" in line]
        assert 16 == replica.until("ready")["credit"]


@pytest.mark.parametrize("wrong", [{"token": "00" * 32}, {"epoch": 8}, {"digest": b"\0" * 32}])
def test_a_link_with_a_wrong_hello_is_closed(tmp_path: Path, identity: MemberSpec, wrong: dict[str, Any]) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link(**wrong) as link:
        assert link.closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n" + b" " * 64,
        frames.call(1, 5, 0) + b"hello",
        frames.prefix(Kind.HELLO, 0, 1 << 20, 0),
    ],
    ids=["not a frame", "a call before HELLO", "a huge HELLO"],
)
def test_a_link_that_does_not_begin_with_hello_is_closed(tmp_path: Path, identity: MemberSpec, sent: bytes) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link(greet=False) as link:
        link.socket.sendall(sent)

        assert link.closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 64,
        frames.ready(1, 2, 3),
        frames.prefix(Kind.CALL, 0, 4, 9) + b"\0\0\0\0",
        frames.prefix(Kind.CALL, 0, frames.CALL_HEAD.size, 9) + frames.CALL_HEAD.pack(0, 0, 0, 0, 0, 500),
        frames.prefix(Kind.CALL, 0, 0xFFFF_FFFF, 9),
    ],
    ids=["garbage", "a replica's frame", "a short call", "a context longer than the call", "an endless call"],
)
def test_broken_frames_close_their_link_and_no_other(tmp_path: Path, identity: MemberSpec, sent: bytes) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as good, replica.link() as bad:
        bad.credit()
        bad.socket.sendall(sent)

        assert bad.closed()
        assert X.tolist() == good.ask({"IN": X}).outputs["OUT"].tolist()


def test_credit_is_divided_among_links_and_given_back_when_one_leaves(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as first:
        assert 16 == first.credit()
        with replica.link() as second:
            assert (8, 8) == (first.credit(), second.credit())
        assert 16 == first.credit()


def test_a_call_beyond_the_credit_closes_the_link(gate: Gate) -> None:
    with gate.replica.link() as greedy, gate.replica.link() as good:
        good.credit()
        greedy.call({"IN": X})
        gate.inside()
        for _ in range(16):
            greedy.call({"IN": X})

        assert greedy.closed()
        gate.open()
        assert good.ask({"IN": X}).error is None


def test_a_call_id_that_is_in_use_closes_the_link(gate: Gate) -> None:
    with gate.replica.link() as link:
        link.call({"IN": X})
        gate.inside()
        link._ids = 0
        link.call({"IN": X})

        assert link.closed()


def test_what_arrives_during_a_batch_becomes_the_next_one(gate: Gate) -> None:
    with gate.replica.link() as link:
        link.call({"IN": X})
        gate.inside()
        for _ in range(5):
            link.call({"IN": X})
        gate.open()

        assert [1, 5, 5, 5, 5, 5] == [link.answer().outputs["OUT"][0, 0] for _ in range(6)]


def test_the_running_batch_is_in_the_page_and_leaves_it(gate: Gate) -> None:
    with gate.replica.link() as link:
        link.credit()
        id = link.call({"IN": X})
        gate.inside()
        (batch,) = gate.replica.running()
        gate.open()
        link.answer()

        assert (1 << 48 | id,) == batch.calls
        assert [] == gate.replica.running()


def test_expired_and_cancelled_calls_are_not_run(gate: Gate) -> None:
    with gate.replica.link() as link:
        link.call({"IN": X})
        gate.inside()
        late = link.call({"IN": X}, timeout_s=0.000001)
        unwanted = link.call({"IN": X})
        wanted = link.call({"IN": X})
        link.cancel(unwanted)
        gate.open()
        answers = {answer.id: answer for answer in [link.answer() for _ in range(4)]}
        counted = gate.replica.counters("m")

        assert DeadlineExceeded.wire == answers[late].error[0]
        assert Cancelled.wire == answers[unwanted].error[0]
        assert 1 == answers[wanted].outputs["OUT"][0, 0]
        assert (2, 1, 1) == (
            counted["nv_inference_request_success"],
            counted["nv_inference_request_failure/REJECTED"],
            counted["nv_inference_request_failure/CANCELED"],
        )


def test_a_running_model_sees_its_caller_cancel(gate: Gate) -> None:
    with gate.replica.link() as link:
        id = link.call({"IN": X})
        gate.inside()
        link.cancel(id)

        assert "saw it" == link.answer().error[1]


def test_a_running_model_sees_its_link_break(gate: Gate) -> None:
    with gate.replica.link() as gone:
        gone.call({"IN": X})
        gate.inside()
    gate.replica.terminate()

    assert 0 == gate.replica.wait()


def test_sigterm_gives_back_what_was_not_started_and_finishes_what_was(gate: Gate) -> None:
    with gate.replica.link() as link:
        running = link.call({"IN": X})
        gate.inside()
        waiting = [link.call({"IN": X}) for _ in range(3)]
        gate.replica.terminate()
        gate.open()
        seen = [link.expect_any(Kind.REPLY, Kind.RETURN, Kind.GOODBYE) for _ in range(5)]

        assert {running} == {frame.id for frame in seen if frame.kind == Kind.REPLY}
        assert set(waiting) == {frame.id for frame in seen if frame.kind == Kind.RETURN}
        assert 1 == sum(frame.kind == Kind.GOODBYE for frame in seen)
        assert link.closed()
        assert 0 == gate.replica.wait()
        assert "finalized" in gate.replica.log


def test_an_idle_replica_ends_at_once_on_sigterm(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica:
        replica.ready().terminate()

        assert 0 == replica.wait()


def test_a_router_that_does_not_read_stops_only_itself(tmp_path: Path) -> None:
    big = batching(inputs={"IN": ("TYPE_FP32", [-1])}, outputs={"OUT": ("TYPE_FP32", [-1])})
    wide = np.zeros((1, 1 << 20), np.float32)
    with (
        Replica(tmp_path, [member(tmp_path, big, {"model.py": IDENTITY})]) as replica,
        replica.ready().link() as deaf,
        replica.link() as good,
    ):
        assert 8 == good.credit()
        for _ in range(8):
            deaf.call({"IN": wide})

        assert X.tolist() == good.ask({"IN": X}).outputs["OUT"].tolist()
        assert [wide.shape] * 8 == [deaf.answer().outputs["OUT"].shape for _ in range(8)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('raise ValueError("boom")', "ValueError: boom\n\nAt:\n  {file}(6): execute\n"),
        ("import sys; sys.exit(3)", "SystemExit: 3\n\nAt:\n  {file}(6): execute\n"),
        ("return None", "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        ("return ()", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("return [1]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
        ("return [None]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'."),
        (
            "return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
    ],
)
def test_a_failing_execute_fails_its_batch_in_tritons_words_and_the_replica_goes_on(tmp_path: Path, body: str, expected: str) -> None:
    source = f"""
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        {body}
"""
    made = member(tmp_path, batching(), {"model.py": source})
    expected = expected.format(file=f"{made.version_dir}/model.py")
    with Replica(tmp_path, [made]) as replica, replica.ready().link() as link:
        for _ in range(2):
            assert (ModelFailed.wire, f"Failed to process the request(s) for model 'm_0', message: {expected}") == link.ask({"IN": X}).error
        counted = replica.counters("m")

    assert (2, 2, 0, 0) == (
        counted["nv_inference_request_failure/BACKEND"],
        counted["nv_inference_exec_count"],
        counted["nv_inference_count"],
        counted["nv_inference_request_success"],
    )


def test_one_response_may_fail_alone_with_its_own_code(tmp_path: Path) -> None:
    source = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("not you", pb_utils.TritonError.INVALID_ARG)) for _ in requests]
    """
    with Replica(tmp_path, [member(tmp_path, batching(), {"model.py": source})]) as replica, replica.ready().link() as link:
        assert (ModelInvalidArgument.wire, "not you") == link.ask({"IN": X}).error


def test_os_exit_in_execute_is_death_and_the_page_says_what_ran(tmp_path: Path) -> None:
    source = "class TritonPythonModel:\n    def execute(self, requests):\n        import os; os._exit(9)\n"
    with Replica(tmp_path, [member(tmp_path, batching(), {"model.py": source})]) as replica, replica.ready().link() as link:
        link.credit()
        id = link.call({"IN": X})

        assert link.closed()
        assert 9 == replica.wait()
        assert [(1 << 48 | id,)] == [batch.calls for batch in replica.running()]


def test_a_malformed_call_fails_alone_and_counts_nowhere(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as link:
        link.raw(b"{")
        failed = link.answer()
        link.ask({"IN": X})
        counted = replica.counters("m")

    assert InvalidRequest.wire == failed.error[0]
    assert 1 == counted["nv_inference_request_success"]
    assert 0 == sum(value for name, value in counted.items() if "failure" in name)


def test_counters_follow_tritons_rules(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as link:
        link.ask({"IN": X})
        link.ask({"IN": np.repeat(X, 3, axis=0)})
        counted = replica.counters("m")

    assert (2, 4, 2) == (counted["nv_inference_request_success"], counted["nv_inference_count"], counted["nv_inference_exec_count"])
    assert (1, 1) == (counted["despina_batches_total/1"], counted["despina_batches_total/3"])
    parts = [counted[f"nv_inference_{name}_duration_us"] for name in ("queue", "compute_input", "compute_infer", "compute_output")]
    assert all(part > 0 for part in parts)
    assert pytest.approx(sum(parts)) == counted["nv_inference_request_duration_us"]
    assert pytest.approx(time.time() * 1e3, abs=60_000) == counted["despina_last_inference_ms"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('init boom')\n",
            "ValueError: init boom\n\nAt:\n  ",
        ),
        ("class TritonPythonModel:\n    def initialize(self, args):\n        raise SystemExit(1)\n", "SystemExit: 1\n\nAt:\n  "),
        ("x = = 1\n", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'\n\nAt:\n  "),
        ("x = 1\n", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
        (None, "model.py does not exist"),
    ],
)
def test_a_model_that_cannot_start_says_why(tmp_path: Path, source: str | None, expected: str) -> None:
    made = member(tmp_path, batching(), {"model.py": source} if source is not None else {})
    with Replica(tmp_path, [made]) as replica:
        assert 1 == replica.wait()
        with pytest.raises(AssertionError):
            replica.until("ready")
        failed = replica.lines[-1]

    assert ("failed", StartFailed.wire) == (failed["state"], failed["wire"])
    assert expected in failed["message"]


def test_a_failing_warm_up_fails_the_start(tmp_path: Path) -> None:
    source = "class TritonPythonModel:\n    def execute(self, requests):\n        raise ValueError(f'{len(requests)} cold')\n"
    warmup = [{"name": "s", "batch_size": 3, "count": 1, "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [16], "zero_data": True}}}]
    with Replica(tmp_path, [member(tmp_path, batching(model_warmup=warmup), {"model.py": source})]) as replica:
        assert 1 == replica.wait()
        with pytest.raises(AssertionError):
            replica.until("ready")

    assert "warm-up sample 's' of 'm' failed" in replica.lines[-1]["message"]
    assert "ValueError: 3 cold" in replica.lines[-1]["message"]


def test_the_authors_output_goes_to_standard_out_and_error(tmp_path: Path) -> None:
    source = IDENTITY + "\n    print('hello from the module')\n"
    with Replica(tmp_path, [member(tmp_path, batching(), {"model.py": source})]) as replica:
        replica.ready().terminate()
        replica.wait()

        assert "hello from the module" in replica.log


def test_several_native_instances_each_have_a_thread(tmp_path: Path) -> None:
    from tests.workers.backends.onnx_models import identity_model

    made = config("o", backend="onnxruntime", batch=4, count=2)
    spec = member(tmp_path, made, {"model.onnx": identity_model()}, threads=2)
    with Replica(tmp_path, [spec]) as replica, replica.ready().link() as link:
        assert 16 == link.credit()
        sent = {link.call({"IN": X + n}): n for n in range(16)}

        for _ in range(16):
            answer = link.answer()
            assert (X + sent[answer.id]).tolist() == answer.outputs["OUT"].tolist()
        assert [] == replica.running()
        replica.terminate()
        assert 0 == replica.wait()


def test_no_file_descriptor_is_left_open_by_links(tmp_path: Path, identity: MemberSpec) -> None:
    with Replica(tmp_path, [identity]) as replica, replica.ready().link() as link:
        link.ask({"IN": X})
        before = len(os.listdir(f"/proc/{replica.process.pid}/fd"))
        for _ in range(20):
            with Link(replica) as other:
                other.ask({"IN": X})
        while link.credit() != 16 or link.frames:
            pass

        assert before == len(os.listdir(f"/proc/{replica.process.pid}/fd"))


def test_a_child_that_the_author_forks_ends_on_sigterm(tmp_path: Path) -> None:
    source = """
    import os, signal
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            ended_by = np.full((1, 16), os.WTERMSIG(status), np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", ended_by)]) for _ in requests]
    """
    with Replica(tmp_path, [member(tmp_path, batching(), {"model.py": source})]) as replica, replica.ready().link() as link:
        assert signal.SIGTERM == link.ask({"IN": X}).outputs["OUT"][0, 0]
        assert signal.SIGTERM == link.ask({"IN": X}).outputs["OUT"][0, 0]
