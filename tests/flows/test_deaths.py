"""Processes die: a replica, the node, the whole tree. What was running is lost with a reason, everything else is answered."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.flows import bundles as make
from tests.flows.load import Load
from tests.flows.platform import Platform, running
from tests.processes import alive, eventually

BODY = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "data": [float(i) for i in range(16)]}]}


def _pid(platform: Platform, name: str) -> int:
    ready = [replica for replica in platform.replicas(name) if replica["state"] in ("ready", "busy")]
    return int(ready[0]["pid"]) if ready else 0


def test_a_killed_replica_loses_at_most_its_running_batch(platform: Platform, bundles: Path) -> None:
    connections, kills = 8, 10
    platform.upload(make.identity(bundles)).expect(201)
    with Load(platform, connections, "/v2/models/identity/infer", BODY) as load:
        for _ in range(kills):
            pid = eventually(lambda: _pid(platform, "identity"), "a ready replica", 30)
            before = load.count()
            os.kill(pid, signal.SIGKILL)
            eventually(lambda old=pid: _pid(platform, "identity") not in (0, old), "a new replica", 30)
            eventually(lambda n=before: load.count() > n + 2 * connections, "answers after the kill", 30)

    assert load.seen.errors == []
    assert len(load.seen.failed) <= connections * kills
    for answer in load.seen.failed:
        assert answer.headers["despina-error"] == "replica_died"
        assert "SIGKILL" in answer.json["error"] or "signal 9" in answer.json["error"]
    right = [1.0 * i for i in range(16)]
    assert all(answer.json["outputs"][0]["data"] == right for answer in load.seen.answers if answer.status == 200)


def test_a_death_in_the_batch_fails_that_call_and_not_those_that_wait(platform: Platform, bundles: Path) -> None:
    bundle = make.python(
        bundles,
        "mortal",
        "input [{ name: 'X', data_type: TYPE_INT32, dims: [1] }]\noutput [{ name: 'Y', data_type: TYPE_INT32, dims: [1] }]",
        """
        import os, time
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                x = requests[0].inputs()[0].as_numpy()
                if x[0] < 0:
                    time.sleep(0.5)
                    os._exit(13)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])]
        """,
    )
    platform.upload(bundle).expect(201)
    deadly = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [-1]}]}
    harmless = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [7]}]}
    connection = platform.connection()
    connection.request("POST", "/v2/models/mortal/infer", json.dumps(deadly), {"Content-Type": "application/json"})
    with Load(platform, 4, "/v2/models/mortal/infer", harmless) as load:
        died = connection.getresponse()
        body = died.read()
        count = load.count()
        eventually(lambda: load.count() > count + 8, "answers after the death", 30)
    connection.close()

    assert died.getheader("Despina-Error") == "replica_died"
    assert b"13" in body
    assert load.seen.errors == []
    assert load.seen.failed == []


def test_a_hung_batch_is_killed_at_its_limit_and_neighbours_go_on(platform: Platform, bundles: Path) -> None:
    code = """
    import ctypes
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            x = requests[0].inputs()[0].as_numpy()
            if x[0] < 0:
                ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL: no thread of this process runs any more
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])]
    """
    config = "input [{ name: 'X', data_type: TYPE_INT32, dims: [1] }]\noutput [{ name: 'Y', data_type: TYPE_INT32, dims: [1] }]"
    bundle = make.python(bundles, "hangs", config, code, **{"function.toml": "[limits]\ntimeout_s = 2\nkill_s = 3\n"})
    platform.upload(bundle).expect(201)
    start = time.monotonic()
    answer = platform.request(
        "POST", "/v2/models/hangs/infer", {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [-1]}]}
    )

    assert (answer.status, answer.headers["despina-error"]) == (504, "deadline_exceeded")
    assert 1.9 <= time.monotonic() - start < 3.5

    good = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [7]}]}

    def answered() -> bool:
        return platform.request("POST", "/v2/models/hangs/infer", good).status == 200

    eventually(answered, "the next answer after the kill", 20)


def test_killing_the_parent_leaves_no_process(tmp_path: Path, bundles: Path) -> None:
    bundle = make.python(
        bundles,
        "spawner",
        "input [{ name: 'X', data_type: TYPE_INT32, dims: [1] }]\noutput [{ name: 'Y', data_type: TYPE_INT32, dims: [1] }]",
        """
        import subprocess
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def initialize(self, args):
                self.children = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["sleep", "600"], start_new_session=True)]

            def execute(self, requests):
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", requests[0].inputs()[0].as_numpy())])]
        """,
    )
    platform = Platform.start(tmp_path / "data")
    try:
        platform.upload(bundle).expect(201)
        tree = platform.processes()

        assert len(tree) >= 6

        platform.process.kill()
        platform.process.wait(10)
        eventually(lambda: not any(alive(pid) for pid in tree), "every process gone", 15)
    finally:
        platform.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_leaves_no_process(tmp_path: Path, bundles: Path, number: signal.Signals) -> None:
    started = tmp_path / "started"
    slow = make.python(
        bundles,
        "slow",
        "input [{ name: 'X', data_type: TYPE_INT32, dims: [1] }]\noutput [{ name: 'Y', data_type: TYPE_INT32, dims: [1] }]",
        """
        import time
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                open(STARTED, "w").close()
                time.sleep(1.0)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", requests[0].inputs()[0].as_numpy())])]
        """.replace("STARTED", repr(str(started))),
    )
    platform = Platform.start(tmp_path / "data")
    try:
        platform.upload(slow).expect(201)
        tree = platform.processes()
        connection = platform.connection()
        connection.request("POST", "/v2/models/slow/infer", b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[7]}]}')
        eventually(started.exists, "the call runs", 10)
        platform.process.send_signal(number)
        answer = connection.getresponse()

        assert answer.status == 200
        assert b"7" in answer.read()

        connection.close()

        assert platform.process.wait(40) == 0

        eventually(lambda: not any(alive(pid) for pid in tree), "every process gone", 5)
    finally:
        platform.stop()


def test_the_platform_outlives_its_node(tmp_path: Path, bundles: Path) -> None:
    with running(tmp_path / "data") as platform:
        platform.upload(make.identity(bundles)).expect(201)
        platform.request("POST", "/v2/models/identity/infer", BODY).expect(200)
        node = next(pid for pid in platform.processes() if b"workers.node.main" in Path(f"/proc/{pid}/cmdline").read_bytes())
        replica = _pid(platform, "identity")
        os.kill(node, signal.SIGKILL)
        eventually(lambda: not alive(replica), "the dead node's replicas gone", 10)
        eventually(lambda: platform.request("POST", "/v2/models/identity/infer", BODY).status == 200, "an answer from the new node", 30)


def test_a_killed_guard_is_replaced_and_the_new_one_does_its_work(tmp_path: Path, bundles: Path) -> None:
    """Nobody noticed a killed guard, so that the next death of the parent left eight processes serving on the port."""
    platform = Platform.start(tmp_path / "data")
    try:
        platform.upload(make.identity(bundles)).expect(201)
        mine = set(_children(platform.process.pid))
        guard = next(pid for pid in mine if b"workers.node.guard" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: _guards(platform) - {guard}, "another guard", 15)
        tree = platform.processes()
        platform.process.kill()
        platform.process.wait(10)
        eventually(lambda: not any(alive(pid) for pid in tree), "every process gone", 15)
    finally:
        platform.stop()


def test_a_second_signal_ends_a_hung_call_at_once(tmp_path: Path, bundles: Path) -> None:
    started = tmp_path / "started"
    bundle = make.python(
        bundles,
        "endless",
        "input [{ name: 'X', data_type: TYPE_INT32, dims: [1] }]\noutput [{ name: 'Y', data_type: TYPE_INT32, dims: [1] }]",
        """
        import time

        class TritonPythonModel:
            def execute(self, requests):
                open(STARTED, "w").close()
                time.sleep(1000)
        """.replace("STARTED", repr(str(started))),
    )
    platform = Platform.start(tmp_path / "data")
    try:
        platform.upload(bundle).expect(201)
        tree = platform.processes()
        connection = platform.connection()
        connection.request("POST", "/v2/models/endless/infer", b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[7]}]}')
        eventually(started.exists, "the call runs", 10)
        platform.process.send_signal(signal.SIGINT)
        eventually(lambda: "a second signal ends them now" in platform.stderr(), "it says what it waits for", 10)
        begun = time.monotonic()
        platform.process.send_signal(signal.SIGINT)

        assert platform.process.wait(20) == 0
        assert time.monotonic() - begun < 15

        connection.close()
        eventually(lambda: not any(alive(pid) for pid in tree), "every process gone", 10)
    finally:
        platform.stop()


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _guards(platform: Platform) -> set[int]:
    return {pid for pid in _children(platform.process.pid) if b"workers.node.guard" in Path(f"/proc/{pid}/cmdline").read_bytes()}
