"""The supervisor with a real zygote and real child processes, which behave as badly as the stand-in can."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from functions.errors import NoCapacity, NotFound, StartFailed, StoreUnreachable
from functions.names import Ref
from tests.processes import alive
from workers.node import birth, census
from workers.node.capacity import Capacity
from workers.node.guard import Guard
from workers.node.messages import ReplicaEvent, State, VersionEvent
from workers.node.output import Outputs
from workers.node.pages import Pages
from workers.node.plan import Plan
from workers.node.rooms import Rooms
from workers.node.supervisor import Supervisor
from workers.node.zygotes import Zygotes
from workers.process.spec import MemberSpec

REPOSITORY = str(Path(__file__).parents[3])


class Stage:
    """A supervisor, what it has said, and what its functions do: ``f`` at version n behaves as ``behave[n]`` says."""

    def __init__(self, root: Path, guard: Guard, *, processes: int = 16, start_s: float = 20.0, drain_s: float = 5.0) -> None:
        self.root, self.guard = root, guard
        self.said: list[ReplicaEvent | VersionEvent] = []
        self.behave: dict[int, str] = {}
        self.lanes: dict[int, int] = {}
        self.kill_s = 330.0
        self.plans = 0
        self.plan_errors: list[Exception] = []
        self._changed = asyncio.Event()
        rooms = Rooms(root, guard.environment, start_s, {"PATH": os.environ["PATH"]})
        self.pages = Pages(root / "pages")
        self.pages.directory.mkdir()
        self.outputs = Outputs(root / "logs")
        (root / "logs").mkdir()
        self.zygotes = Zygotes(
            guard,
            {**rooms.environment, "PYTHONPATH": REPOSITORY},
            runtime="tests.workers.node.standin:run",
            preload=(),
            output=str(root / "logs" / "zygote.log"),
            on_exit=lambda id, status: self.supervisor.exited(id, status),
        )
        self.capacity = Capacity(processes, 1 << 40)
        self.supervisor = Supervisor(
            self._plan,
            self.zygotes,
            rooms,
            self.pages,
            self.outputs,
            self.capacity,
            starts=4,
            drain_s=drain_s,
            on_event=self._hear,
        )

    def _plan(self, ref: Ref) -> Plan:
        self.plans += 1
        if self.plan_errors:
            raise self.plan_errors.pop(0)
        member = MemberSpec(ref.name, ref.version, "sha256:" + "0" * 64, str(self.root), {"behave": self.behave.get(ref.version, "serve")})
        return Plan(ref, member.digest, (member,), self.lanes.get(ref.version, 1), 300.0, self.kill_s, 1 << 20, 1 << 20)

    def _hear(self, event: ReplicaEvent | VersionEvent) -> None:
        self.said.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
        """Look again whenever something was said, and at least each 50 ms."""
        try:
            async with asyncio.timeout(deadline_s):
                while not condition():
                    self._changed.clear()
                    self.supervisor.tick()
                    try:
                        await asyncio.wait_for(self._changed.wait(), 0.05)
                    except TimeoutError:
                        continue
        except TimeoutError:
            pytest.fail(f"not within {deadline_s} s: {what}; said: {self.said}")

    def want(self, version: int = 1, count: int = 1, ttl_s: float = 600.0) -> int:
        return self.supervisor.want("test", Ref("f", version), count, ttl_s)

    def ready(self, version: int = 1) -> list[ReplicaEvent]:
        return [event for event in self.supervisor.replicas("f") if event.version == version and event.state in (State.READY, State.BUSY)]

    async def up(self, version: int = 1, count: int = 1) -> list[ReplicaEvent]:
        self.want(version, count)
        lanes = self.lanes.get(version, 1)
        await self.until(lambda: len(self.ready(version)) == count * lanes, f"{count} ready")
        return self.ready(version)

    def gone(self, id: str) -> ReplicaEvent | None:
        return next((event for event in self.said if isinstance(event, ReplicaEvent) and event.id == id and event.state.gone), None)

    async def end(self, id: str) -> ReplicaEvent:
        await self.until(lambda: self.gone(id) is not None, f"{id} is gone")
        event = self.gone(id)
        assert event is not None
        return event

    def failures(self) -> list[VersionEvent]:
        return [event for event in self.said if isinstance(event, VersionEvent)]


@pytest.fixture
async def stage(short: Path, guard: Guard) -> AsyncIterator[Stage]:
    stage = Stage(short, guard)
    stage.zygotes.start()
    yield stage
    await close(stage)


async def close(stage: Stage) -> None:
    await stage.supervisor.close()
    await stage.zygotes.close()
    assert (stage.capacity.processes, stage.capacity.memory_bytes) == (stage.capacity.free_processes, stage.capacity.free_bytes)
    assert set() == census.carrying(f"{Guard.VARIABLE}={stage.guard.token}")


def dial(event: ReplicaEvent) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(event.address.removeprefix("unix:"))
    return connection


async def test_what_is_wanted_becomes_ready_and_says_how_it_got_there(stage: Stage) -> None:
    (event,) = await stage.up()

    states = [said.state for said in stage.said if isinstance(said, ReplicaEvent)]
    assert [State.STARTING, State.LOADING, State.WARMING, State.READY] == states
    assert {"placed", "fetched", "forked", "imported", "loaded", "warmed"} == set(event.phases)
    assert (0.001, 0.002, 0.003) == tuple(event.phases[phase] for phase in ("imported", "loaded", "warmed"))
    assert 64 == len(event.token)
    with dial(event) as connection:
        connection.sendall(b"x")
        assert b"" == connection.recv(1)


async def test_a_lane_is_a_process_of_its_own(stage: Stage) -> None:
    stage.lanes[1] = 3
    events = await stage.up(count=2)

    assert 6 == len({event.pid for event in events})
    assert [0, 0, 1, 1, 2, 2] == sorted(event.lane for event in events)
    assert 2 == stage.want(count=2)


async def test_when_the_lease_ends_the_replica_drains_and_leaves_nothing(stage: Stage) -> None:
    (event,) = await stage.up()
    with dial(event) as connection:
        connection.sendall(b"x")
        connection.recv(1)
    stage.want(count=0)
    gone = await stage.end(event.id)

    assert (State.STOPPED, 0, ()) == (gone.state, gone.wire, gone.running)
    assert not alive(event.pid)
    await stage.until(lambda: not (stage.root / "work" / event.id).exists(), "its working directory is removed")
    assert [] == list((stage.root / "r").iterdir())
    assert [] == list(stage.pages.directory.iterdir())
    (total,) = [sample for sample in stage.pages.samples() if sample.family == "nv_inference_request_success"]
    assert 1.0 == total.value
    assert "draining" in stage.outputs.tail("f@1", 10)


async def test_the_largest_lease_counts_and_each_ends_by_itself(stage: Stage) -> None:
    ref = Ref("f", 1)
    stage.supervisor.want("a", ref, 1, 600)
    stage.supervisor.want("b", ref, 3, 600)
    await stage.until(lambda: len(stage.ready()) == 3, "three ready")
    stage.supervisor.want("b", ref, 0, 0)
    await stage.until(lambda: len(stage.ready()) == 1, "one ready")
    stage.supervisor.want("a", ref, 1, 0.01)
    await stage.until(lambda: not stage.supervisor.replicas(), "none left")

    assert [] == stage.supervisor.events()


async def test_a_killed_replica_is_reported_with_the_calls_that_ran_and_replaced(stage: Stage) -> None:
    (event,) = await stage.up()
    with dial(event):
        await stage.until(lambda: stage.ready()[0].state is State.BUSY, "it runs a batch")
        os.kill(event.pid, signal.SIGKILL)
        gone = await stage.end(event.id)

    assert (State.FAILED, 320) == (gone.state, gone.wire)
    assert (1 << 48 | 7, 1 << 48 | 8) == gone.running
    assert "was killed by SIGKILL" in gone.message
    await stage.until(lambda: len(stage.ready()) == 1, "another is ready")
    assert event.epoch < stage.ready()[0].epoch
    assert [] == stage.failures()


async def test_everything_a_killed_replica_started_dies_with_it(stage: Stage) -> None:
    stage.behave[1] = "daemons"
    (event,) = await stage.up()
    daemons = census.descendants([event.pid])
    os.kill(event.pid, signal.SIGKILL)
    stage.want(count=0)
    await stage.end(event.id)

    assert 3 == len(daemons)
    await stage.until(lambda: not any(map(alive, daemons)), "its daemons are dead")


async def test_a_batch_that_hangs_in_c_is_killed_after_kill_s(stage: Stage) -> None:
    stage.behave[1] = "hang-in-c"
    stage.kill_s = 0.3
    (event,) = await stage.up()
    with dial(event):
        gone = await stage.end(event.id)

    assert (State.FAILED, 321) == (gone.state, gone.wire)
    assert "longer than limits.kill_s = 0.3 s" in gone.message
    assert (1 << 48 | 7, 1 << 48 | 8) == gone.running


async def test_a_replica_that_ignores_sigterm_is_killed_at_its_deadline(short: Path, guard: Guard) -> None:
    stage = Stage(short, guard, drain_s=0.3)
    stage.kill_s = 0.2
    stage.behave[1] = "ignore-sigterm"
    stage.zygotes.start()
    (event,) = await stage.up()
    stage.want(count=0)
    gone = await stage.end(event.id)

    assert State.FAILED is gone.state
    assert "0.3 s after it was asked to" in gone.message
    await close(stage)


async def test_three_deaths_while_loading_fail_the_version_with_its_last_output(stage: Stage) -> None:
    stage.behave[1] = "exit-in-load"
    stage.want()
    await stage.until(lambda: bool(stage.failures()), "the version has failed")

    (failure,) = stage.failures()
    assert (True, StartFailed.wire, 30.0) == (failure.failed, failure.wire, failure.retry_after_s)
    assert "3 replicas in a row died while they started; the last: f@1: replica" in failure.message
    assert "exited with code 7" in failure.message
    assert failure.output.startswith("loading f-1-")
    assert 3 == len([said for said in stage.said if isinstance(said, ReplicaEvent) and said.state is State.FAILED])
    with pytest.raises(StartFailed, match="3 replicas in a row"):
        stage.want()
    assert [failure] == stage.supervisor.events()


async def test_a_load_that_says_why_it_fails_is_not_tried_again_until_it_is_reset(stage: Stage) -> None:
    stage.behave[1] = "refuse-load"
    stage.want()
    await stage.until(lambda: bool(stage.failures()), "the version has failed")
    (failure,) = stage.failures()

    assert (302, "initialize raised ValueError: no") == (failure.wire, failure.message)
    assert "Traceback: the author's own words" in failure.output
    assert 1 == stage.plans

    stage.behave[1] = "serve"
    stage.supervisor.reset(Ref("f", 1))
    await stage.until(lambda: len(stage.ready()) == 1, "ready after the reset")

    assert [True, False] == [event.failed for event in stage.failures()]


async def test_a_load_that_hangs_is_killed_and_fails_the_version(short: Path, guard: Guard) -> None:
    stage = Stage(short, guard, start_s=0.5)
    stage.behave[1] = "hang-in-load"
    stage.zygotes.start()
    await stage.until(lambda: stage.zygotes.ready, "the zygote is ready")
    stage.want()
    await stage.until(lambda: bool(stage.failures()), "the version has failed")

    assert "f@1 was not ready within 0.5 s; it was loading" == stage.failures()[0].message
    await close(stage)


async def test_nonsense_on_the_status_pipe_is_ignored(stage: Stage) -> None:
    stage.behave[1] = "nonsense"
    (event,) = await stage.up()

    assert State.READY is event.state


async def test_a_version_that_does_not_exist_fails_at_once_and_a_store_that_is_away_is_tried_again_soon(stage: Stage) -> None:
    stage.plan_errors = [NotFound("no such version")]
    stage.want()
    await stage.until(lambda: bool(stage.failures()), "it has failed")
    assert (102, 30.0) == (stage.failures()[0].wire, stage.failures()[0].retry_after_s)

    stage.plan_errors = [StoreUnreachable("away"), StoreUnreachable("away")]
    stage.want(2)
    await stage.until(lambda: len(stage.ready(2)) == 1, "ready in the end")
    of_two = [(event.failed, event.wire) for event in stage.failures() if event.version == 2]
    assert [(True, 205), (False, 0), (True, 205), (False, 0)] == of_two


async def test_when_the_zygote_is_killed_replicas_live_on_and_new_ones_are_born_from_another(stage: Stage) -> None:
    (old,) = await stage.up()
    zygote = stage.zygotes.pid
    os.kill(zygote, signal.SIGKILL)
    await stage.until(lambda: stage.zygotes.pid not in (0, zygote) and stage.zygotes.ready, "another zygote is ready")
    with dial(old) as connection:
        connection.sendall(b"x")
        assert b"" == connection.recv(1)

    await stage.up(count=2)
    os.kill(old.pid, signal.SIGKILL)
    gone = await stage.end(old.id)

    assert "its zygote did not live to say how" in gone.message
    assert set() == census.carrying(birth.mark(old.id))
    await stage.until(lambda: len(stage.ready()) == 2, "two are ready again")


async def test_a_zygote_killed_while_it_forks_delays_the_start_and_nothing_else(stage: Stage) -> None:
    await stage.until(lambda: stage.zygotes.ready, "the zygote is ready")
    os.kill(stage.zygotes.pid, signal.SIGSTOP)
    stage.want()
    await stage.until(lambda: stage.supervisor.replicas() != [], "the start has begun")
    os.kill(stage.zygotes.pid, signal.SIGKILL)
    await stage.until(lambda: len(stage.ready()) == 1, "ready in the end")

    assert [] == stage.failures()


async def test_over_capacity_is_refused_and_met_when_there_is_room_again(short: Path, guard: Guard) -> None:
    stage = Stage(short, guard, processes=2)
    stage.zygotes.start()
    await stage.up(1, 2)
    stage.want(2)
    await stage.until(lambda: stage.plans == 2, "version 2 is planned")

    def refused() -> bool:
        try:
            stage.want(2)
        except NoCapacity as error:
            return "all 2 replica processes of this node are in use" in str(error)
        return False

    await stage.until(refused, "it is refused")
    stage.want(1, 1)
    await stage.until(lambda: len(stage.ready(2)) == 1, "version 2 got the room")
    await close(stage)


async def test_closing_ends_replicas_in_every_state(short: Path, guard: Guard) -> None:
    stage = Stage(short, guard, drain_s=0.5)
    stage.zygotes.start()
    stage.behave = {2: "hang-in-load", 3: "ignore-sigterm", 4: "exit-in-load"}
    await stage.up(1)
    await stage.up(3)
    stage.want(2)
    stage.want(4)
    stage.want(5)
    await close(stage)

    assert [] == stage.supervisor.replicas()
