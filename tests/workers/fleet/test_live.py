"""The fleet with nothing faked: a node process, its replicas, a board, the controller process; this test is the gateway."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from functions.bundle import Inspected
from functions.config.checks import normalise
from functions.config.text import parse
from functions.errors import AuthorHung, DespinaError, ReplicaDied, StartFailed
from functions.manifest import Manifest
from functions.names import LIVE, Ref, parse_ref
from functions.records import File
from registry.service import Registry
from registry.stores import open_store
from tests.workers.fleet.boards import RunningBoard
from tests.workers.fleet.fakes import Answer
from workers.fleet.board import open_board
from workers.fleet.node_client import NodeAddress
from workers.fleet.nodes import Nodes
from workers.fleet.promotion import Outcome
from workers.fleet.reporter import report
from workers.fleet.rollout import Rollout
from workers.fleet.router import Router
from workers.fleet.terms import Terms
from workers.node import census
from workers.node.guard import Guard

pytestmark = [pytest.mark.flow, pytest.mark.timeout(180)]

WAIT_S = 60.0
CONFIG = """
backend: "python"
max_batch_size: 0
input [{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }]
"""
MODEL = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x[0] == 1: os.kill(os.getpid(), 9)
            if x[0] == 2: time.sleep(600)
            if x[0] >= 3: time.sleep(float(x[1]))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + ADD)]))
        return answers
"""


class Machine:
    """Everything of one machine but the gateway."""

    def __init__(self, run: Path, data: Path) -> None:
        self.run, self.data = run, data
        self.mark, self.token = secrets.token_hex(16), secrets.token_hex(16)
        self.registry = Registry(open_store(f"file://{data}/store"), time.time)
        self.registry.catalog.load()
        self.board = RunningBoard(run / "board.sock", data / "board", data / "board.log")
        self.nodes = Nodes([NodeAddress(f"unix:{run}/node.sock", self.token)])
        self.children: list[subprocess.Popen[bytes]] = []
        self.bundles: dict[str, Inspected] = {}

    def spawn(self, module: str, **settings: Any) -> dict[str, Any]:
        with (self.data / f"{module}.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(settings)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, Guard.VARIABLE: self.mark},
                start_new_session=True,
            )
        self.children.append(child)
        assert child.stdout is not None
        with child.stdout:
            line = child.stdout.readline()

        assert line, (self.data / f"{module}.log").read_text()
        return json.loads(line)["ready"]  # type: ignore[no-any-return]

    def node(self) -> None:
        where = {"run": self.run, "cache": self.data / "cache", "logs": self.data / "logs", "control": self.run / "node.sock"}
        self.spawn(
            "workers.node.main",
            **{key: str(path) for key, path in where.items()},
            store=f"file://{self.data}/store",
            token=self.token,
            instance=self.mark,
            metrics_port=0,
        )

    def controller(self) -> None:
        nodes = [{"address": f"unix:{self.run}/node.sock", "token": self.token}]
        self.spawn("workers.fleet.controller", board=self.board.url, store=f"file://{self.data}/store", nodes=nodes, every_s=0.2)

    async def inspect(self, source: Path, name: str, _staging: Path) -> Inspected:
        """As the inspection would report it; the files lie in ``source``."""
        paths = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        data = {str(path): (source / path).read_bytes() for path in paths}
        return Inspected(
            files={path: File(hashlib.sha256(text).hexdigest(), len(text), False) for path, text in data.items()},
            config=normalise(parse((source / "config.pbtxt").read_text()), name, []),
            manifest=Manifest.model_validate(json.loads((source / "manifest.json").read_text())).to_json(),
            author_dir="1",
            calls={},
            environment="",
            warnings=(),
            staging=source,
        )

    def bundle(self, add: str, **manifest: Any) -> Path:
        source = self.data / "bundles" / secrets.token_hex(4)
        (source / "1").mkdir(parents=True)
        (source / "config.pbtxt").write_text(CONFIG)
        (source / "1" / "model.py").write_text(f"ADD = {add}\n{MODEL}")
        (source / "manifest.json").write_text(json.dumps(manifest))
        return source

    async def stop(self) -> None:
        await self.nodes.close()
        for child in reversed(self.children):
            child.terminate()
        for child in reversed(self.children):
            assert await asyncio.to_thread(child.wait, 30) == 0
        self.board.stop()


@pytest.fixture
async def machine(sockets: Path, tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(sockets, tmp_path)
    try:
        machine.board.start()
        await asyncio.to_thread(machine.node)
        machine.nodes.start()
        await machine.nodes.wait_connected(WAIT_S)
        yield machine
        await machine.stop()
    finally:
        machine.board.stop()
        census.exterminate(f"{Guard.VARIABLE}={machine.mark}")


@pytest.fixture
async def door(machine: Machine) -> AsyncIterator[Router]:
    catalog = machine.registry.catalog
    router = Router(
        machine.nodes,
        lambda ref: Terms.of(catalog.record(*ref).manifest, catalog.scale(ref.name)),
        lambda _caller, name: parse_ref(name),
    )
    yield router
    await router.close(0.0)


def rollout(machine: Machine) -> Rollout:
    return Rollout(machine.registry, machine.nodes, machine.inspect, machine.data / "staging")


def ask(router: Router, ref: Ref, x: tuple[float, float], timeout_s: float = WAIT_S) -> Answer:
    tensor = {"name": "X", "shape": [2], "datatype": "FP32"}
    answer = Answer(ref, json.dumps({"inputs": [{**tensor, "data": list(x)}]}).encode(), timeout_s=timeout_s)
    router.submit(answer.call)
    return answer


async def told(answer: Answer) -> list[float] | DespinaError:
    end = await asyncio.wait_for(asyncio.shield(answer.end), WAIT_S)
    return end if isinstance(end, DespinaError) else json.loads(end)["outputs"][0]["data"]  # type: ignore[no-any-return]


async def test_publish_call_publish_again_and_roll_back(machine: Machine, door: Router) -> None:
    out = rollout(machine)
    first = await out.publish(machine.bundle("10"), "f", by="ann", release="r1")

    assert Outcome.MOVED is first.promotion.state, first.promotion.reason
    assert 1 == machine.nodes.ready(Ref("f", 1))
    assert [10.0, 15.0] == await told(ask(door, Ref("f", 1), (0.0, 5.0)))

    broken = await out.publish(machine.bundle("missing_name"), "f", by="ann", release="r2")

    assert (Outcome.FAILED, StartFailed) == (broken.promotion.state, type(broken.promotion.error))
    assert "missing_name" in broken.promotion.reason
    assert isinstance(await told(ask(door, Ref("f", 2), (0.0, 5.0))), StartFailed)
    assert 1 == machine.registry.catalog.tag("f", LIVE).version

    third = await out.publish(machine.bundle("30"), "f", by="ann", release="r3")

    assert Outcome.MOVED is third.promotion.state, third.promotion.reason
    answers = [ask(door, Ref("f", version), (0.0, float(n))) for n in range(20) for version in (1, 3)]
    assert [[add, add + n] for n in range(20) for add in (10.0, 30.0)] == [await told(answer) for answer in answers]

    began = time.monotonic()

    assert Outcome.MOVED is (await out.rollback("f", by="ann", release="r4")).state
    assert time.monotonic() - began < 5.0
    assert 1 == machine.registry.catalog.tag("f", LIVE).version


async def test_a_call_at_zero_starts_a_replica_and_only_the_running_batch_dies_with_it(machine: Machine, door: Router) -> None:
    await rollout(machine).publish(machine.bundle("1"), "f", promote=False, by="ann", release="r")
    ref = Ref("f", 1)

    assert 0 == machine.nodes.ready(ref)
    assert [1.0, 2.0] == await told(ask(door, ref, (0.0, 1.0)))

    slow = ask(door, ref, (3.0, 0.2))
    while not door.pool(ref).running():
        await asyncio.sleep(0)
    killing, behind = ask(door, ref, (1.0, 0.0)), [ask(door, ref, (0.0, float(n))) for n in range(5)]

    assert [4.0, 1.2] == pytest.approx(await told(slow))
    death = await told(killing)

    assert isinstance(death, ReplicaDied), death
    assert "SIGKILL" in death.message
    assert [[1.0, n + 1.0] for n in range(5)] == [await told(answer) for answer in behind]


async def test_a_hanging_batch_is_killed_and_the_rest_is_answered_by_another_replica(machine: Machine, door: Router) -> None:
    source = machine.bundle("1", limits={"timeout_s": 1.0, "kill_s": 1.5})
    await rollout(machine).publish(source, "f", by="ann", release="r")
    hanging, behind = ask(door, Ref("f", 1), (2.0, 0.0)), ask(door, Ref("f", 1), (0.0, 1.0))

    assert isinstance(await told(hanging), AuthorHung)
    assert [1.0, 2.0] == await told(behind)


async def test_the_controller_scales_by_what_the_board_says_and_survives_its_loss(machine: Machine, door: Router) -> None:
    source = machine.bundle("1", scale={"max": 2, "target": 1.0, "idle_s": 1.0})
    await rollout(machine).publish(source, "f", by="ann", release="r")
    await asyncio.to_thread(machine.controller)
    board = open_board(machine.board.url)
    reporting = asyncio.create_task(report(board, "gateway", door.observations, every_s=0.1))
    ref = Ref("f", 1)
    calls = [ask(door, ref, (3.0, 0.5)) for _ in range(12)]
    await machine.nodes.wait_ready(ref, 2, WAIT_S, least=2)
    machine.board.stop()
    for call in calls:
        assert [4.0, 1.5] == await told(call)
    machine.board.start()

    assert [1.0, 1.0] == await told(ask(door, ref, (0.0, 0.0)))
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)
    await board.close()
    log = (machine.data / "workers.fleet.controller.log").read_text()

    assert 1 == log.count("board_lost")
    assert "scaled version=f@1 from=0 to=" in log


async def test_when_the_node_dies_waiting_calls_are_answered_by_the_next_one(machine: Machine, door: Router) -> None:
    await rollout(machine).publish(machine.bundle("1"), "f", by="ann", release="r")
    ref = Ref("f", 1)

    assert [1.0, 1.0] == await told(ask(door, ref, (0.0, 0.0)))

    node = machine.children.pop()
    os.kill(node.pid, signal.SIGKILL)
    await asyncio.to_thread(node.wait)
    while door.pool(ref).linked:
        await asyncio.sleep(0)
    waiting = ask(door, ref, (0.0, 2.0))
    await asyncio.to_thread(machine.node)

    assert [1.0, 3.0] == await told(waiting)
