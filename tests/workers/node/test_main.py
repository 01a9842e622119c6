"""A whole node process with the real replica runtime and a real store: a bundle is inspected, recorded, wanted, called, and the
node is stopped, and killed, in every way it may be."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.paths import Limits
from functions.protocol import frames
from functions.protocol.frames import Kind, Splitter
from functions.records import VersionRecord
from registry.service import Registry
from registry.stores import open_store
from tests.processes import alive, eventually
from tests.workers.node import bundles
from workers.node import census
from workers.node.guard import Guard
from workers.node.inspection import inspect
from workers.node.messages import MAX_LINE, ReplicaEvent, State

pytestmark = pytest.mark.flow
CONTROL_TOKEN = "c" * 32
DAEMONIC = (
    bundles.MODEL
    + """
    def initialize(self, args):
        import os, subprocess, time
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        print("three daemons are away")
"""
)


class Machine:
    """A node process and its store."""

    def __init__(self, root: Path, token: str) -> None:
        self.root, self.token = root, token
        self.store = f"file://{root}/store"
        self.registry = Registry(open_store(self.store), time.time)
        self.registry.catalog.load()
        self.process: subprocess.Popen[str] | None = None
        self.metrics_port = 0

    async def publish(self, name: str, bundle: Path, **with_: int) -> VersionRecord:
        staging = self.root / "staging" / secrets.token_hex(4)
        inspected = await inspect(bundle, name, staging, Limits())
        record, _ = self.registry.record(inspected, name, "test", with_ or None)
        return record

    def start(self, **settings: Any) -> None:
        given = {
            "run": f"{self.root}/run",
            "cache": f"{self.root}/cache",
            "logs": f"{self.root}/logs",
            "store": self.store,
            "control": f"{self.root}/run/node",
            "token": CONTROL_TOKEN,
            "instance": self.token,
            "metrics_port": 0,
            "drain_s": 3.0,
            **settings,
        }
        with (self.root / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers.node.main", json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, Guard.VARIABLE: self.token},
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.root / "node.log").read_text()
        self.metrics_port = json.loads(line)["ready"]["metrics_port"]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    async def connect(self) -> Control:
        control = Control(*await asyncio.open_unix_connection(f"{self.root}/run/node", limit=MAX_LINE))
        await control.ask("hello", token=CONTROL_TOKEN)
        await control.ask("watch")
        return control


class Control:
    """A client of the node: mirrors the events it hears while it waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.replicas: dict[str, ReplicaEvent] = {}
        self.events: list[dict[str, Any]] = []

    async def ask(self, op: str, **fields: Any) -> Any:
        self.writer.write(json.dumps({"op": op, "seq": 1, **fields}).encode() + b"\n")
        while True:
            line = await self._hear()
            if "seq" in line:
                assert "ok" in line, line
                return line["ok"]

    async def ready(self, record: VersionRecord, count: int = 1) -> list[ReplicaEvent]:
        await self.ask("want", name=record.name, version=record.version, count=count, ttl_s=600)
        while True:
            ready = [event for event in self.replicas.values() if event.ref == record.ref and event.state is State.READY]
            if len(ready) >= count:
                return ready
            await self._hear()

    async def gone(self, id: str) -> ReplicaEvent:
        while not self.replicas[id].state.gone:
            await self._hear()
        return self.replicas[id]

    async def _hear(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            line: dict[str, Any] = json.loads(await self.reader.readline())
        if line.get("event") == "replica":
            event = ReplicaEvent.from_json(line)
            self.replicas[event.id] = event
        elif line.get("event") == "version":
            assert not line["failed"], line
        return line


async def infer(event: ReplicaEvent, body: bytes) -> dict[str, Any]:
    """One call over a link of its own."""
    reader, writer = await asyncio.open_unix_connection(event.address.removeprefix("unix:"))
    got: list[tuple[int, bytes]] = []
    splitter = Splitter(lambda kind, _flags, _id, payload: got.append((kind, bytes(payload))))
    writer.write(frames.hello(bytes.fromhex(event.token), bytes.fromhex(event.digest.removeprefix("sha256:")), event.epoch))
    writer.write(frames.call(1, len(body), 60_000_000) + body)
    async with asyncio.timeout(30):
        while Kind.REPLY not in [kind for kind, _ in got]:
            data = await reader.read(65536)
            assert data, got
            splitter.feed(data)
            for kind, payload in got:
                assert kind != Kind.FAILURE, frames.read_failure(memoryview(payload))
    writer.close()
    (payload,) = [payload for kind, payload in got if kind == Kind.REPLY]
    answer: dict[str, Any] = json.loads(bytes(frames.read_reply(memoryview(payload))[1]))
    return answer


BODY = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()


@pytest.fixture
def machine(short: Path, token: str) -> Iterator[Machine]:
    machine = Machine(short, token)
    yield machine
    if machine.process is not None and machine.process.poll() is None:
        machine.process.kill()
        machine.process.wait()
        assert machine.process.stdout is not None
        machine.process.stdout.close()


def left(machine: Machine) -> set[int]:
    return census.carrying(f"{Guard.VARIABLE}={machine.token}")


async def test_a_bundle_is_served_counted_and_let_go(machine: Machine, tmp_path: Path) -> None:
    record = await machine.publish("echo", bundles.write(tmp_path / "b"))
    machine.start()
    control = await machine.connect()
    (event,) = await control.ready(record)
    answer = await infer(event, BODY)
    (stats,) = await control.ask("statistics", name="echo")
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{machine.metrics_port}/metrics")).text
    await control.ask("want", name="echo", version=1, count=0, ttl_s=0)
    gone = await control.gone(event.id)
    (after,) = await control.ask("statistics", name="echo")
    control.writer.close()

    assert [1.0, 2.0, 3.0, 4.0] == answer["outputs"][0]["data"]
    assert 1 == stats["inference_stats"]["success"]["count"]
    assert 'nv_inference_request_success{model="echo",version="1"} 1' in text.splitlines()
    assert 'despina_replicas{function="echo",state="ready",version="1"} 1' in text.splitlines()
    assert State.STOPPED is gone.state
    assert stats == after
    assert 0 == machine.stop()
    assert set() == left(machine)


async def test_a_second_replica_is_a_second_process_and_the_terminal_stops_both(machine: Machine, tmp_path: Path) -> None:
    record = await machine.publish("echo", bundles.write(tmp_path / "b"))
    machine.start()
    control = await machine.connect()
    events = await control.ready(record, 2)

    assert 2 == len({event.pid for event in events})
    control.writer.close()
    assert 0 == machine.stop(signal.SIGINT)
    assert set() == left(machine)


async def test_when_the_node_is_killed_nothing_is_left_author_daemons_included(machine: Machine, tmp_path: Path) -> None:
    record = await machine.publish("daemonic", bundles.write(tmp_path / "b", DAEMONIC))
    machine.start()
    assert machine.process is not None
    control = await machine.connect()
    (event,) = await control.ready(record)
    assert ["three daemons are away"] == [
        line for line in await control.ask("logs", name="daemonic", version=1, lines=50) if "daemons" in line
    ]
    family = census.descendants([machine.process.pid])
    control.writer.close()
    assert 6 <= len(family), "guard, zygote, replica and three daemons"

    machine.stop(signal.SIGKILL)

    eventually(lambda: not any(map(alive, family)), "the guard has killed them all, and ended")
    assert not alive(event.pid)
    assert set() == left(machine)


async def test_a_node_started_after_a_killed_one_serves_again(machine: Machine, tmp_path: Path) -> None:
    record = await machine.publish("echo", bundles.write(tmp_path / "b"))
    machine.start()
    control = await machine.connect()
    await control.ready(record)
    machine.stop(signal.SIGKILL)
    control.writer.close()
    machine.start()
    control = await machine.connect()
    (event,) = await control.ready(record)

    assert [1.0, 2.0, 3.0, 4.0] == (await infer(event, BODY))["outputs"][0]["data"]
    control.writer.close()
    assert 0 == machine.stop()


async def test_a_model_that_raises_in_initialize_is_told_to_its_author(machine: Machine, tmp_path: Path) -> None:
    model = bundles.MODEL + "\n    def initialize(self, args):\n        raise ValueError('no weights today')\n"
    await machine.publish("broken", bundles.write(tmp_path / "b", model))
    machine.start()
    control = await machine.connect()
    await control.ask("want", name="broken", version=1, count=1, ttl_s=600)
    while True:
        line = json.loads(await asyncio.wait_for(control.reader.readline(), 60))
        if line.get("event") == "version":
            break
    control.writer.close()

    assert (True, 302) == (line["failed"], line["wire"])
    assert "no weights today" in line["message"]
    assert "no weights today" in line["output"]
    assert 0 == machine.stop()


async def test_the_real_zygote_has_one_thread_and_the_model_libraries_and_nothing_of_the_servers(machine: Machine) -> None:
    machine.start()
    assert machine.process is not None
    log = machine.root / "node.log"
    eventually(lambda: "zygote_ready" in log.read_text(), "the zygote is ready")
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in census.descendants([machine.process.pid])}
    (zygote,) = [pid for pid, command in commands.items() if "workers.node.zygote" in command]
    mapped = Path(f"/proc/{zygote}/maps").read_text()

    assert "preload_dropped" not in log.read_text()
    assert 1 == len(os.listdir(f"/proc/{zygote}/task"))
    assert "numpy" in mapped
    assert "onnxruntime" in mapped
    assert [] == [library for library in ("uvloop", "httptools", "grpc", "pydantic", "google") if library in mapped]
    assert 0 == machine.stop()


def refused(settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workers.node.main", json.dumps(settings)], capture_output=True, text=True, check=False, timeout=60
    )


def test_settings_that_cannot_be_used_are_one_line_and_exit_code_2(machine: Machine, short: Path) -> None:
    good = {
        **{key: str(short / key) for key in ("run", "cache", "logs")},
        "store": f"file://{short}/store",
        "control": str(short / "run" / "node"),
        "token": CONTROL_TOKEN,
        "instance": machine.token,
        "metrics_port": 0,
    }
    machine.start()
    in_use = refused({**good, "metrics_port": machine.metrics_port, "control": str(short / "other")})
    unknown = refused({**good, "colour": "red"})
    long = refused({**good, "run": str(short / ("x" * 120)), "control": str(short / "other")})
    store = refused({**good, "store": "ftp://nowhere", "control": str(short / "other")})

    assert [2, 2, 2, 2] == [each.returncode for each in (in_use, unknown, long, store)]
    assert "in use" in in_use.stderr
    assert "colour" in unknown.stderr
    assert "too long for the names of unix sockets" in long.stderr
    assert "ftp://nowhere" in store.stderr
    assert 0 == machine.stop()
