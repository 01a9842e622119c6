"""One child process of ``despina up``: spawned, ready, watched, started again when it dies, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.errors import CapacityError, DespinaError, ProtocolError
from workers.node.backoff import Backoff
from workers.node.guard import Guard

log = logging.getLogger(__name__)

STEADY_S = 60.0
"""After so much life a death counts as the first again."""
_ENDING_S = 1.0
"""A process that dies closes its output first: so long is waited for the exit code, which says more."""

Fact = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """What to run and how it says that it is ready."""

    name: str
    """One word, the same in logs: ``board``, ``node``, ``controller``, ``gateway``."""
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    """File that its standard error is appended to."""
    ready: Callable[[asyncio.StreamReader], Awaitable[Fact]]
    """Waits until it serves, given its standard output; what it says of itself."""
    inherits: tuple[int, ...] = ()
    """File descriptors it keeps."""
    start_s: float = 60.0
    settings: bytes = b""
    """What its standard input holds, and then ends: there nobody else can read it, as arguments can be."""


class Child:
    """Owned by the loop of ``up``. The guard knows its process group for as long as it lives."""

    def __init__(self, program: Program, guard: Guard) -> None:
        self.program = program
        self.fact: Fact = {}
        self._guard = guard
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> Fact:
        """Spawn it and wait until it is ready. Raises CapacityError, for the operator, with the last line it wrote."""
        program = self.program
        with program.log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=dict(program.environment),
                start_new_session=True,
                pass_fds=program.inherits,
            )
        self._process = process
        self._guard.add(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(program.settings)
        process.stdin.close()
        ready = asyncio.ensure_future(program.ready(process.stdout))
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ready, ended}, timeout=program.start_s, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and ready.exception() is None:
                self.fact = ready.result()
                log.info("%s ready pid=%d", program.name, process.pid)
                return self.fact
            if ready.done():
                await asyncio.wait({ended}, timeout=_ENDING_S)
            reason = f"{program.start_s:g} s are over"
            if ended.done():
                reason = describe(ended.result())
            elif ready.done():
                reason = str(ready.exception())
        finally:
            for task in (ready, ended):
                task.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)
        await self._end(process, 0.0)
        raise CapacityError(f"{program.name} did not start ({reason}): {last_line(program.log)}")

    async def keep(self) -> None:
        """Start it again whenever it dies, until ``stop``."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(0.5, 2, 15)
        while self._process is not None:
            began = loop.time()
            code = await self._process.wait()
            self._guard.remove(self._process.pid)
            if self._stopping:
                return
            if loop.time() - began > STEADY_S:
                backoff.succeeded()
            pause = backoff.failed()
            log.error("%s died (%s); again in %g s: %s", self.program.name, describe(code), pause, last_line(self.program.log))
            await asyncio.sleep(pause)
            with contextlib.suppress(DespinaError):
                await self.start()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to its whole group after ``grace_s``."""
        self._stopping = True
        if self._process is not None:
            await self._end(self._process, grace_s)

    def kill(self) -> None:
        """End it now, with its whole group."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self, process: asyncio.subprocess.Process, grace_s: float) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await process.wait()
            except TimeoutError:
                log.warning("%s did not stop within %g s; killing it", self.program.name, grace_s)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        self._guard.remove(process.pid)


async def says_ready(output: asyncio.StreamReader) -> Fact:
    """For programs of ours: the first line ``{"ready": {…}}``. Raises ProtocolError."""
    line = await output.readline()
    try:
        fact: Fact = json.loads(line)["ready"]
    except (ValueError, KeyError, TypeError):
        raise ProtocolError(f"it said {line[:200]!r} instead of that it is ready") from None
    return fact


def last_line(path: Path) -> str:
    """The last line of a log that is not empty; "" for none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1][:1000] if lines else ""
    return ""


def describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
