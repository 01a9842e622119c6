"""A real zygote, spoken to over its socket as the node does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import alive, eventually
from workers.node import birth, census
from workers.node.birth import MARK, MARK_BYTES, Birth
from workers.node.guard import Guard
from workers.process import page
from workers.process.spec import MemberSpec, ReplicaSpec

REPOSITORY = str(Path(__file__).parents[3])
QUIET = {"OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
THREADING = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


class Midwife:
    """One zygote and the test's end of its socket."""

    def __init__(self, root: Path, token: str, preload: tuple[str, ...] = (), environment: dict[str, str] | None = None) -> None:
        self.root = root
        self.token = token
        self.statuses: list[Status] = []
        self.output = root / "zygote.log"
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(30)
        arguments = {"control": theirs.fileno(), "runtime": "tests.workers.node.standin:run", "preload": preload}
        with theirs, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers.node.zygote", json.dumps(arguments)],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": REPOSITORY,
                    **QUIET,
                    Guard.VARIABLE: token,
                    MARK: "_" * MARK_BYTES,
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.ready = self.hear()["ready"]

    def hear(self) -> dict[str, Any]:
        data, descriptors, _, _ = socket.recv_fds(self.control, 65536, 1)
        assert data, self.output.read_text()
        message: dict[str, Any] = json.loads(data)
        if descriptors:
            message["pidfd"] = descriptors[0]
        return message

    def fork(self, id: str, behave: str = "serve") -> tuple[dict[str, Any], Status]:
        page.create(str(self.root / f"{id}.page"))
        member = MemberSpec("f", 1, "sha256:" + "0" * 64, str(self.root), {"behave": behave})
        spec = ReplicaSpec(id, (member,), "ab" * 32, 1, str(self.root / f"{id}.page"))
        environment = {"PATH": os.environ["PATH"], Guard.VARIABLE: self.token, MARK: birth.stamp(id)}
        order = Birth(id, spec.to_json(), str(self.root), environment, {"core": 0, "nofile": 4096})
        reading, writing = os.pipe()
        log = os.open(self.root / f"{id}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.root / f"{id}.sock"))
            listener.listen()
            birth.send(self.control, order, listener.fileno(), writing, log)
        os.close(writing)
        os.close(log)
        forked = self.hear()
        os.close(forked.pop("pidfd"))
        self.statuses.append(Status(reading))
        return forked, self.statuses[-1]

    def close(self) -> None:
        for status in self.statuses:
            status.file.close()
        census.exterminate(self.token, [self.process.pid])
        self.control.close()
        self.process.wait(10)


class Status:
    """The reading end of a replica's status pipe."""

    def __init__(self, descriptor: int) -> None:
        self.file = os.fdopen(descriptor, "rb")

    def until(self, state: str) -> None:
        for line in self.file:
            if json.loads(line).get("state") == state:
                return
        raise AssertionError(f"it ended before it was {state}")


@pytest.fixture
def midwife(short: Path, token: str) -> Iterator[Midwife]:
    midwife = Midwife(short, token)
    yield midwife
    midwife.close()


def facts(midwife: Midwife, id: str) -> dict[str, Any]:
    log = midwife.root / f"{id}.log"
    eventually(lambda: "FACTS " in log.read_text() and log.read_text().endswith("\n"), "it has printed its facts")
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("FACTS ")]
    result: dict[str, Any] = json.loads(line.removeprefix("FACTS "))
    return result


def test_a_zygote_has_exactly_one_thread_and_no_server_library(midwife: Midwife) -> None:
    forked, status = midwife.fork("a-1", "report")
    status.until("ready")
    child = facts(midwife, "a-1")

    assert ["1"] == [str(len(os.listdir(f"/proc/{midwife.process.pid}/task")))]
    assert 1 == child["tasks"]
    assert set() == {"grpc", "uvicorn", "uvloop", "fastapi", "pydantic", "google.protobuf", "registry", "asyncio"} & set(child["modules"])
    os.kill(forked["pid"], signal.SIGTERM)


def test_a_child_is_born_clean(midwife: Midwife) -> None:
    os.environ["DESPINA_ADMIN_TOKEN"] = "secret"
    try:
        forked, status = midwife.fork("a-1", "report")
    finally:
        del os.environ["DESPINA_ADMIN_TOKEN"]
    status.until("ready")
    child = facts(midwife, "a-1")

    assert forked["pid"] == child["pid"] == child["session"]
    assert {"PATH", Guard.VARIABLE, MARK} == set(child["environment"])
    root = midwife.root
    assert (
        sorted(["/dev/null", f"{root}/a-1.log", f"{root}/a-1.log", f"{root}/a-1.page", "/proc", "pipe", "socket"]) == child["descriptors"]
    )
    assert str(midwife.root) == child["directory"]
    assert [0, 0] == child["core"]
    assert "500" == child["oom"]
    assert [str(signal.SIG_DFL)] * 2 == child["signals"]


def test_children_do_not_share_their_random_numbers(midwife: Midwife) -> None:
    values = set()
    for id in ("a-1", "a-2", "a-3"):
        _, status = midwife.fork(id, "report")
        status.until("ready")
        child = facts(midwife, id)
        values |= {child["random"], child["numpy"]}

    assert 6 == len(values)


def test_deaths_are_reported_with_their_wait_status(midwife: Midwife) -> None:
    forked, status = midwife.fork("a-1", "exit-in-load")

    assert {"exited": "a-1", "pid": forked["pid"], "status": 7 << 8} == midwife.hear()

    forked, status = midwife.fork("a-2")
    status.until("ready")
    os.kill(forked["pid"], signal.SIGKILL)

    assert {"exited": "a-2", "pid": forked["pid"], "status": signal.SIGKILL} == midwife.hear()


def test_everything_a_replica_leaves_behind_carries_its_mark(midwife: Midwife) -> None:
    _, status = midwife.fork("a-1", "daemons")
    midwife.fork("a-10")
    status.until("ready")
    # Itself, the inheriting sleep, the forked daemon; the sleep with an empty environment is a descendant.
    eventually(lambda: 3 == len(census.carrying(birth.mark("a-1"))), "its marked processes are there")


def test_when_a_replica_dies_all_that_it_started_dies_whatever_it_did_to_hide(midwife: Midwife) -> None:
    forked, status = midwife.fork("a-1", "daemons")
    other, _ = midwife.fork("a-2")
    status.until("ready")
    eventually(lambda: 3 == len(census.carrying(birth.mark("a-1"))), "its marked processes are there")
    # Besides the marked ones: a sleep in a session of its own, with an empty environment.
    daemons = census.descendants([forked["pid"]])
    assert 3 == len(daemons)

    os.kill(forked["pid"], signal.SIGKILL)

    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in daemons), "all are dead and reaped")
    assert alive(other["pid"])


def test_a_library_that_starts_threads_or_fails_is_dropped_and_the_zygote_starts_again_without_it(short: Path, token: str) -> None:
    (short / "threading_library.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (short / "broken_library.py").write_text("raise RuntimeError('no licence')\n")
    (short / "good_library.py").write_text("")
    midwife = Midwife(short, token, ("broken_library", "threading_library", "good_library"), {"PYTHONPATH": f"{short}:{REPOSITORY}"})

    assert midwife.ready["dropped"] == {
        "threading_library": "it starts 1 thread(s) when it is imported",
        "broken_library": "RuntimeError: no licence",
    }
    _, status = midwife.fork("a-1", "report")
    status.until("ready")
    modules = facts(midwife, "a-1")["modules"]

    assert "good_library" in modules
    assert "threading_library" not in modules
    midwife.close()


@pytest.mark.parametrize("module", ["onnxruntime"])
def test_what_is_preloaded_by_default_starts_no_thread(short: Path, token: str, module: str) -> None:
    pytest.importorskip(module)
    midwife = Midwife(short, token, (module,))

    assert midwife.ready["dropped"] == {}
    assert 1 == len(os.listdir(f"/proc/{midwife.process.pid}/task"))
    midwife.close()


def test_a_zygote_ends_when_its_node_has_gone(midwife: Midwife) -> None:
    midwife.control.close()

    assert 0 == midwife.process.wait(10)


def test_a_zygote_without_room_for_the_mark_refuses_to_start() -> None:
    result = subprocess.run([sys.executable, "-m", "workers.node.zygote", "{}"], env={}, capture_output=True, text=True, check=False)

    assert 1 == result.returncode
    assert "must keep 128 bytes in DESPINA_REPLICA" in result.stderr


def test_the_terminal_cannot_interrupt_a_zygote(midwife: Midwife) -> None:
    os.kill(midwife.process.pid, signal.SIGINT)
    midwife.fork("a-1")

    assert alive(midwife.process.pid)
