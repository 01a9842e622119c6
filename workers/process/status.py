"""What a starting replica tells its node: one JSON object a line on a pipe."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from functions.errors import DespinaError


class Status:
    """A node that has gone away reads nothing any more, and that is no reason to fail: its guard ends this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def state(self, state: str) -> None:
        self._write({"state": state})

    def ready(self, credit: int) -> None:
        self._write({"state": "ready", "credit": credit})

    def failed(self, error: DespinaError) -> None:
        self._write({"state": "failed", "wire": error.wire, "message": error.message})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report how long the body took, when it ends well."""
        started = time.monotonic()
        yield
        self._write({"phase": name, "seconds": round(time.monotonic() - started, 6)})

    def _write(self, facts: dict[str, object]) -> None:
        try:
            os.write(self._descriptor, json.dumps(facts).encode() + b"\n")
        except BrokenPipeError:
            return
