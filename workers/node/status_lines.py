"""What a starting replica says of itself, one JSON object a line on its status pipe. Whatever else comes is ignored: author's
code runs in that process and may write there.

    {"state": "loading" | "warming"}            it goes on
    {"state": "ready", "credit": n}             its warm-up is answered; it takes calls
    {"phase": "imported", "seconds": s}         one phase of its start took so long
    {"state": "failed", "wire": n, "message": …} it cannot start, and why; the same would happen again
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from functions.errors import AuthorError, CapacityError, DespinaError, InternalError, StartFailed, from_wire
from workers.node.messages import State

MAX_LINE = 64 * 1024
_PHASES = frozenset({"imported", "loaded", "warmed"})
_STATES = {state.value: state for state in (State.LOADING, State.WARMING, State.READY)}


class Progress(NamedTuple):
    state: State


class Phase(NamedTuple):
    name: str
    seconds: float


class Failed(NamedTuple):
    error: DespinaError


class StatusLines:
    """Cuts a status pipe into what it says."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[Progress | Phase | Failed]:
        """What the lines that are complete now say. A line over MAX_LINE is skipped."""
        *lines, rest = (self._rest + data).split(b"\n")
        if self._skipping and lines:
            lines.pop(0)
            self._skipping = False
        if len(rest) > MAX_LINE:
            self._skipping, rest = True, b""
        elif self._skipping:
            rest = b""
        self._rest = rest
        return [said for line in lines if len(line) <= MAX_LINE and (said := read(line)) is not None]


def read(line: bytes) -> Progress | Phase | Failed | None:
    """What one line says; None for one that says nothing known."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("state") == "failed":
        return Failed(_error(fields.get("wire"), str(fields.get("message", ""))))
    if isinstance(fields.get("state"), str):
        state = _STATES.get(fields["state"])
        return None if state is None else Progress(state)
    return _phase(fields)


def _phase(fields: dict[str, Any]) -> Phase | None:
    name, seconds = fields.get("phase"), fields.get("seconds")
    if name not in _PHASES or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return None
    return Phase(name, max(0.0, float(seconds)))


def _error(wire: object, message: str) -> DespinaError:
    error = from_wire(wire, message) if isinstance(wire, int) else StartFailed(message)
    # A replica can fail for its author, for want of something, or for our own mistake; never for a caller it has not met.
    return error if isinstance(error, AuthorError | CapacityError | InternalError) else StartFailed(message)
