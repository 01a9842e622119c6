"""The guard is tested on real processes that do their best to escape."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.processes import alive, eventually
from workers.node import census
from workers.node.guard import Guard, _note

PARENT = """
import os, subprocess, sys
from workers.node.guard import Guard
guard = Guard.start(sys.argv[1])
command, environment = [sys.executable, "-c", sys.argv[2]], {**os.environ, **guard.environment}
child = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.PIPE)
guard.add(child.pid)
child.stdout.readline()
print(guard.pid, flush=True)
sys.stdin.read()
"""
QUIET = "import time; print('up', flush=True); time.sleep(600)"
DAEMON = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("up", flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
SCRUBBED = """
import subprocess, time
subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""


def start_parent(token: str, child: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PARENT, token, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize("child", [QUIET, DAEMON], ids=["plain", "double-forked"])
def test_when_the_parent_is_killed_no_process_of_its_instance_is_left(token: str, child: str) -> None:
    with start_parent(token, child) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        assert census.carrying(token)

        parent.kill()

    eventually(lambda: not alive(guard), "the guard has ended")

    assert set() == census.carrying(f"{Guard.VARIABLE}={token}")


def test_a_descendant_with_an_empty_environment_and_a_session_of_its_own_is_killed_too(token: str) -> None:
    with start_parent(token, SCRUBBED) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        (child,) = census.carrying(f"{Guard.VARIABLE}={token}")
        (sleeper,) = census.descendants([child])

        parent.kill()

    eventually(lambda: not alive(guard), "the guard has ended")

    assert not alive(sleeper)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_guard_survives_what_a_terminal_sends(token: str, number: signal.Signals) -> None:
    guard = Guard.start(token)
    ready = subprocess.Popen([sys.executable, "-c", QUIET], env={**os.environ, **guard.environment}, start_new_session=True)
    guard.add(ready.pid)
    eventually(lambda: _ignores(guard.pid, number), "the guard ignores signals")

    os.kill(guard.pid, number)
    guard.close()

    assert ready.wait(5) == -signal.SIGKILL


def test_a_removed_group_is_left_alone(token: str) -> None:
    guard = Guard.start(token)
    with subprocess.Popen([sys.executable, "-c", QUIET], start_new_session=True) as stranger:
        guard.add(stranger.pid)
        guard.remove(stranger.pid)
        guard.close()

        assert stranger.poll() is None
        stranger.kill()


def test_a_guard_that_was_killed_is_replaced_and_knows_the_groups(token: str) -> None:
    guard = Guard.start(token)
    with subprocess.Popen([sys.executable, "-c", QUIET], start_new_session=True) as child:
        guard.add(child.pid)
        os.kill(guard.pid, signal.SIGKILL)
        eventually(guard.ensure, "the dead guard was noticed")

        guard.close()

        assert child.wait(5) == -signal.SIGKILL


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        Guard.start("short")


def test_groups_come_and_go_by_line() -> None:
    groups: set[int] = set()
    _note(groups, [b"+12", b"+13", b"-12", b"-99"])

    assert {13} == groups


def _status(pid: int) -> bytes:
    with open(f"/proc/{pid}/status", "rb") as file:
        return file.read()


def _ignores(pid: int, number: int) -> bool:
    (line,) = [line for line in _status(pid).splitlines() if line.startswith(b"SigIgn")]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
