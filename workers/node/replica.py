"""One child: one lane of one replica. Knows its states and how it ended; not what a model is, and not why it was wanted.

    starting → loading → warming → ready → draining → stopped
        └─────────┴─────────┴────────┴─────────┴────→ failed

``busy`` is ready with a batch in its page; it is shown when somebody asks, and is no change of state. The node's loop owns it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from functions.errors import AuthorHung, DespinaError, NoCapacity, ReplicaDied, StartFailed
from workers.node import birth as births
from workers.node.birth import MARK, Birth
from workers.node.messages import ReplicaEvent, State
from workers.node.plan import Plan
from workers.node.status_lines import Failed, Phase, Progress, StatusLines
from workers.node.zygotes import Born, Zygotes
from workers.process import page
from workers.process.page import Batch, PageReader
from workers.process.spec import ReplicaSpec

BACKLOG = 128
_EXIT_WAIT_S = 1.0
"""How long after a death its zygote may take to report the exit status."""
_FORK_S = 60.0
"""How long a fork may wait for a zygote that is being started again."""
_ORDER = (State.STARTING, State.LOADING, State.WARMING, State.READY, State.DRAINING)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one replica's things lie, and what it is born with."""

    page: str
    socket: Path
    work: Path
    """Its working directory, removed after its death."""
    environment: Mapping[str, str]
    limits: Mapping[str, int]
    start_s: float
    """Seconds it may take to become ready."""


class Replica:
    """``on_change(replica)`` is called on each change of state, last when it is gone and everything it held is closed."""

    def __init__(self, id: str, plan: Plan, number: int, lane: int, epoch: int, place: Place, on_change: Callable[[Replica], None]) -> None:
        self.id, self.plan, self.number, self.lane, self.epoch = id, plan, number, lane, epoch
        self.state = State.STARTING
        self.phases: dict[str, float] = {}
        self.pid = 0
        self.error: DespinaError | None = None
        """When failed: why."""
        self.deterministic = False
        """When failed: whether another attempt would end the same way."""
        self.running: tuple[int, ...] = ()
        """When gone: the calls of the batches that were running."""
        self.ready_at: float | None = None
        """Loop time of when it became ready."""
        self.settled = asyncio.Event()
        """Set once it is ready, or gone."""
        self._place = place
        self._on_change = on_change
        self._token = secrets.token_hex(32)
        self._loop = asyncio.get_running_loop()
        self._reader: PageReader | None = None
        self._status = -1
        self._pidfd = -1
        self._exit: int | None = None
        self._lines = StatusLines()
        self._verdict: DespinaError | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def gone(self) -> bool:
        return self.state.gone

    def event(self, *, busy: bool = False) -> ReplicaEvent:
        """The replica as it is now; with ``busy``, a ready one that runs a batch is shown as busy."""
        shown = State.BUSY if busy and self.state is State.READY and self._batches() else self.state
        return ReplicaEvent(
            id=self.id,
            name=self.plan.ref.name,
            version=self.plan.ref.version,
            digest=self.plan.digest,
            state=shown,
            address=f"unix:{self._place.socket}",
            token=self._token,
            epoch=self.epoch,
            lane=self.lane,
            lanes=self.plan.lanes,
            pid=self.pid,
            phases=dict(self.phases),
            wire=self.error.wire if self.error else 0,
            message=str(self.error) if self.error else "",
            running=self.running,
        )

    async def start(self, zygotes: Zygotes, log: int) -> None:
        """Have the zygote fork it; ``log`` becomes its output and stays the caller's to close. Failures do not raise: they are its end."""
        began = time.monotonic()
        try:
            born = await self._fork(zygotes, log, self._loop.time() + min(self._place.start_s, _FORK_S))
        except (DespinaError, OSError) as error:
            self._finish(error if isinstance(error, DespinaError) else NoCapacity(f"replica {self.id} could not be made here: {error}"))
            return
        if self.gone:  # it died so fast that its zygote's two messages came together
            os.close(born.pidfd)
            return
        self.pid, self._pidfd = born.pid, born.pidfd
        self.phases["forked"] = time.monotonic() - began
        self._loop.add_reader(self._status, self._hear)
        self._loop.add_reader(self._pidfd, self._ended)
        self._after(self._place.start_s, self._overdue)
        if self._verdict is not None:  # stopped while it was being forked
            self._signal(signal.SIGKILL)

    def drain(self, deadline_s: float) -> None:
        """Ask it to finish what runs and to end; SIGKILL follows after ``deadline_s``."""
        if self.gone or self.state is State.DRAINING:
            return
        self._become(State.DRAINING)
        self._signal(signal.SIGTERM)
        self._after(deadline_s, self._stubborn, deadline_s)

    def kill(self, error: DespinaError) -> None:
        """SIGKILL, its whole group; it fails with ``error``."""
        if self._verdict is None:
            self._verdict = error
        self._signal(signal.SIGKILL)

    def check(self, now_ns: int) -> None:
        """Kill it if a batch has run too long. ``now_ns`` is CLOCK_MONOTONIC."""
        for batch in () if self.gone else self._batches():
            if 0 < batch.started_ns < now_ns - self.plan.kill_s * 1e9:
                self.kill(AuthorHung(f"{self.plan.ref}: a batch ran longer than limits.kill_s = {self.plan.kill_s:g} s and was killed"))
                return

    def abandon(self, error: DespinaError | None = None) -> None:
        """It was never started, and will not be: it was stopped first, or for ``error``."""
        self._finish(error)

    def exited(self, status: int) -> None:
        """Its zygote saw it end with this wait status."""
        self._exit = status
        self._finish()

    async def _fork(self, zygotes: Zygotes, log: int, deadline: float) -> Born:
        page.create(self._place.page)
        self._reader = PageReader(self._place.page)
        self._place.work.mkdir(parents=True, mode=0o700)
        self._status, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._status, False)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(self._place.socket))
                listener.listen(BACKLOG)
                return await zygotes.fork(self._birth(), listener.fileno(), writing, log, deadline)
        finally:
            os.close(writing)

    def _birth(self) -> Birth:
        spec = ReplicaSpec(
            id=self.id,
            members=self.plan.members,
            token=self._token,
            epoch=self.epoch,
            page=self._place.page,
            lane=self.lane,
            lanes=self.plan.lanes,
            timeout_s=self.plan.timeout_s,
            body_bytes=self.plan.body_bytes,
        )
        work = str(self._place.work)
        environment = {**self._place.environment, "HOME": work, "TMPDIR": work, MARK: births.stamp(self.id)}
        return Birth(self.id, spec.to_json(), work, environment, self._place.limits)

    def _batches(self) -> list[Batch]:
        return self._reader.running() if self._reader is not None else []

    def _hear(self) -> None:
        try:
            data = os.read(self._status, 65536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._status)
            return
        for said in self._lines.feed(data):
            if isinstance(said, Phase):
                self.phases[said.name] = said.seconds
            elif isinstance(said, Progress):
                self._advance(said.state)
            elif isinstance(said, Failed):
                self._failed(said)

    def _failed(self, said: Failed) -> None:
        """Its first word on why it cannot go on; before it was ready, the same would happen again."""
        if self._verdict is None:
            self._verdict = said.error
            self.deterministic = self.ready_at is None and not said.error.retry

    def _advance(self, state: State) -> None:
        if not self.gone and _ORDER.index(state) > _ORDER.index(self.state):
            if state is State.READY:
                self.ready_at = self._loop.time()
            self._become(state)

    def _become(self, state: State) -> None:
        self.state = state
        if state is State.READY or state.gone:
            self.settled.set()
        self._on_change(self)

    def _overdue(self) -> None:
        if self.ready_at is None and not self.gone:
            self.deterministic = True
            self.kill(StartFailed(f"{self.plan.ref} was not ready within {self._place.start_s:g} s; it was {self.state}"))

    def _stubborn(self, deadline_s: float) -> None:
        self.kill(ReplicaDied(f"{self.plan.ref}: replica {self.id} had not ended {deadline_s:g} s after it was asked to, and was killed"))

    def _signal(self, number: signal.Signals) -> None:
        if self._pidfd < 0:
            if self._verdict is None:
                self._verdict = ReplicaDied(f"{self.plan.ref}: replica {self.id} was stopped before it was born")
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _ended(self) -> None:
        # The zygote reports the status a moment later, unless it is dead too.
        self._loop.remove_reader(self._pidfd)
        self._after(_EXIT_WAIT_S, self._finish)

    def _after(self, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
        self._timers.append(self._loop.call_later(delay_s, call, *arguments))

    def _finish(self, fault: DespinaError | None = None) -> None:
        """Read what is left to read, close everything, say how it ended. A second time does nothing."""
        if self.gone:
            return
        for timer in self._timers:
            timer.cancel()
        self._hear_rest()
        self.running = tuple(call for batch in self._batches() for call in batch.calls)
        orderly = self.state is State.DRAINING and (self._exit == 0 or self.ready_at is None)
        if not orderly:
            self.error = fault or self._verdict or ReplicaDied(f"{self.plan.ref}: replica {self.id} {self._manner()}")
        self._close()
        self._become(State.STOPPED if orderly else State.FAILED)

    def _hear_rest(self) -> None:
        if self._status < 0:
            return
        self._loop.remove_reader(self._status)
        while True:
            try:
                data = os.read(self._status, 65536)
            except BlockingIOError:
                return
            if not data:
                return
            for said in self._lines.feed(data):
                if isinstance(said, Failed):
                    self._failed(said)

    def _close(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self._status >= 0:
            os.close(self._status)
        self._pidfd = self._status = -1
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._place.socket.unlink(missing_ok=True)

    def _manner(self) -> str:
        if self._exit is None:
            return "ended, and its zygote did not live to say how"
        if os.WIFSIGNALED(self._exit):
            number = os.WTERMSIG(self._exit)
            hint = "; the machine may have run out of memory" if number == signal.SIGKILL else ""
            return f"was killed by {signal.Signals(number).name}{hint}"
        return f"exited with code {os.waitstatus_to_exitcode(self._exit)}"
