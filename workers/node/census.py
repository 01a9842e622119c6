"""Which processes of this machine belong to whom, read from /proc: nothing a child does to its session or parent hides it.

A mark is text in the environment that a process was exec'd with. Its forked children show the same bytes, whatever they call
(``setsid``, a second fork, a group of their own); its exec'd children inherit it unless they scrub their environment, and
then they are still found as descendants while their ancestors live.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

KILL_S = 10.0
"""How long processes may take to die of SIGKILL."""


class Entry(NamedTuple):
    """One line of the process table."""

    pid: int
    state: str
    """R, S, D, T, Z …, as ``ps`` prints it."""
    parent: int
    group: int
    session: int


def table() -> list[Entry]:
    """Every process there is, zombies included; those that end while it is read are left out."""
    entries = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = _read(f"/proc/{name}/stat")
            if stat:
                # The command stands in parentheses and may itself hold spaces and parentheses.
                state, parent, group, session = stat[stat.rindex(b")") + 2 :].split(b" ", 4)[:4]
                entries.append(Entry(int(name), state.decode(), int(parent), int(group), int(session)))
    return entries


def carrying(mark: str) -> set[int]:
    """The living processes whose environment holds ``mark``, this one left out."""
    needle = mark.encode()
    own = str(os.getpid())
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and name != own and needle in _read(f"/proc/{name}/environ")}


def descendants(roots: Iterable[int]) -> set[int]:
    """The living children of ``roots``, their children, and so on; the roots themselves left out."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for entry in table():
        children.setdefault(entry.parent, []).append(entry.pid)
        if entry.state in "ZX":
            zombies.add(entry.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found - zombies - {os.getpid()}


def began(pid: int) -> float | None:
    """When the process with that number began, in seconds since the epoch; None if there is none, or only a zombie."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split(b" ")
    if fields[0] in (b"Z", b"X"):
        return None
    uptime_s = float(_read("/proc/uptime").split()[0])
    return time.time() - uptime_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def exterminate(mark: str, groups: Iterable[int] = ()) -> set[int]:
    """SIGKILL ``groups``, all their descendants and every process that carries ``mark``, again and again until none is left
    or KILL_S have passed. Returns those that would not die (a process inside an uninterruptible system call)."""
    groups = set(groups)
    until = time.monotonic() + KILL_S
    # Descendants are listed before the first kill: a killed parent's children belong to someone else.
    victims = descendants(groups) | carrying(mark)
    for group in groups:
        _signal_group(group)
    while victims:
        for pid in victims:
            _signal_process(pid)
        if time.monotonic() >= until:
            return victims
        time.sleep(0.01)
        victims = carrying(mark)
    return set()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # it ended meanwhile, or belongs to another user: either way not ours
        return b""


def _signal_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _signal_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
