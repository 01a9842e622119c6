"""Processes that are killed -9 at a chosen point, to see what they leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

POINTS = ("open", "fsync", "link", "replace", "rename", "unlink", "mkdir", "utime")
"""The calls of ``os`` by which anything on a disk changes."""


def deaths(work: Callable[[], object]) -> Iterator[int]:
    """Run ``work`` in a child that is killed before its first such call, then in one killed before its second, and so on, until one
    lives to the end. Yields after each death, and after the survivor: look at what is left."""
    for point in range(10_000):
        survived = _run(work, point)
        yield point
        if survived:
            return
    raise AssertionError("the work does not come to an end")


def _run(work: Callable[[], object], point: int) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _die_at(point)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert signal.SIGKILL == os.WTERMSIG(status)
        return False
    assert 0 == os.WEXITSTATUS(status), "the work failed by itself"
    return True


def _die_at(point: int) -> None:
    left = iter(range(point))

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counting

    for name in POINTS:
        setattr(os, name, counted(getattr(os, name)))
