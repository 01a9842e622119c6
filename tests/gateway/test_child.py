"""One child of ``despina up``, as a real process: what is said of one that does not start, and that one which dies comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

import pytest

from functions.errors import CapacityError
from gateway.child import Child, Program, says_ready
from workers.node.guard import Guard

READY = """print('{"ready": {"port": 7}}', flush=True); import signal; signal.pause()"""


class Remembering:
    """Stands for the guard."""

    def __init__(self) -> None:
        self.groups: set[int] = set()
        self.seen: list[int] = []
        self.again = asyncio.Event()

    def add(self, group: int) -> None:
        self.groups.add(group)
        self.seen.append(group)
        if len(self.seen) > 1:
            self.again.set()

    def remove(self, group: int) -> None:
        self.groups.discard(group)


def child(tmp_path: Path, code: str, guard: Remembering, start_s: float = 30.0, settings: bytes = b"") -> Child:
    command, log = [sys.executable, "-c", code], tmp_path / "thing.log"
    return Child(Program("thing", command, dict(os.environ), log, says_ready, start_s=start_s, settings=settings), cast(Guard, guard))


async def test_a_child_is_known_to_the_guard_for_as_long_as_it_lives(tmp_path: Path) -> None:
    guard = Remembering()
    thing = child(tmp_path, READY, guard)

    assert {"port": 7} == await thing.start()
    assert {thing.pid} == guard.groups

    await thing.stop(10)

    assert set() == guard.groups


async def test_settings_go_by_standard_input_where_no_list_of_processes_shows_them(tmp_path: Path) -> None:
    code = "import sys, signal; print(sys.stdin.read(), flush=True); signal.pause()"
    thing = child(tmp_path, code, Remembering(), settings=b'{"ready": {"x": 1}}')

    assert {"x": 1} == await thing.start()

    await thing.stop(10)


@pytest.mark.parametrize(
    ("code", "start_s", "why"),
    [
        ("raise SystemExit('the port is taken')", 30.0, r"thing did not start \(exit code 1\): the port is taken"),
        ("import os; os.abort()", 30.0, r"signal SIGABRT"),
        ("print('hello', flush=True); import signal; signal.pause()", 30.0, r"it said b'hello\\n' instead"),
        ("import signal; signal.pause()", 0.3, r"0\.3 s are over"),
    ],
)
async def test_one_that_does_not_start_says_why_and_is_gone(tmp_path: Path, code: str, start_s: float, why: str) -> None:
    guard = Remembering()
    with pytest.raises(CapacityError, match=why):
        await child(tmp_path, code, guard, start_s).start()

    assert set() == guard.groups


async def test_one_that_dies_is_started_again(tmp_path: Path) -> None:
    guard = Remembering()
    thing = child(tmp_path, READY, guard)
    await thing.start()
    keeping = asyncio.ensure_future(thing.keep())
    os.kill(thing.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        await guard.again.wait()
    await thing.stop(10)
    await keeping

    assert set() == guard.groups
