"""What a node and its clients (gateways, the controller) say to each other: one JSON object a line over a stream socket.

A client sends requests ``{"op": …, "seq": n, …}``; the node answers ``{"seq": n, "ok": …}`` or ``{"seq": n, "error":
{"wire": n, "message": …}}``. A client that sent ``watch`` also receives events, without ``seq``: first one for
everything that exists, then one for each change. ``hello`` with the node's token must be the first request.

    hello       token client?             → node id, cores, memory_bytes, pid
    watch                                 → then events: ReplicaEvent, VersionEvent
    want        name version count ttl_s  → hold at least ``count`` replicas for ``ttl_s`` seconds. One lease a client and version,
                                            renewed by sending it again; count 0 gives it up. The node holds the largest of
                                            all living leases; a lease ends with ttl_s, not with the connection.
    replicas    name?                     → list of ReplicaEvent as JSON
    statistics  name? version?            → Triton's ``model_stats`` entries
    logs        name version lines        → the last lines its replicas wrote
    reset       name version              → forget that a version failed, so that it may be started again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from functions.errors import DespinaError, ReplicaDied, StartFailed, from_wire
from functions.names import Ref

MAX_LINE = 4 << 20
"""Longest line in bytes, either way."""


class State(StrEnum):
    """The life of a replica: starting → loading → warming → ready ⇄ busy → draining → stopped; failed from any of them."""

    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def serving(self) -> bool:
        """It takes calls."""
        return self in (State.READY, State.BUSY)

    @property
    def gone(self) -> bool:
        return self in (State.STOPPED, State.FAILED)


@dataclass(frozen=True, slots=True)
class ReplicaEvent:
    """One lane of one replica, as it is now. A router dials ``address`` when ``state`` is ready."""

    id: str
    name: str
    version: int
    digest: str
    state: State
    address: str
    """``unix:/path`` or ``tcp:host:port``."""
    token: str
    """64 hex digits, for HELLO."""
    epoch: int
    lane: int = 0
    lanes: int = 1
    pid: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds each phase of its start took: placed, fetched, forked, imported, loaded, warmed."""
    wire: int = 0
    """When gone: the error number, by functions.errors; 0 for an orderly stop."""
    message: str = ""
    running: tuple[int, ...] = ()
    """When gone: the call ids (link << 48 | frame id) of the batches that were running; all other calls may be queued again."""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.version)

    def error(self) -> DespinaError:
        """When gone: what the callers of its running batches are told."""
        message = self.message or f"{self.ref}: its replica {self.id} stopped while it ran this call"
        return from_wire(self.wire, message) if self.wire else ReplicaDied(message)

    def to_json(self) -> dict[str, Any]:
        return {"event": "replica", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplicaEvent:
        fields = {key: value for key, value in data.items() if key != "event"}
        return cls(**{**fields, "state": State(data["state"]), "running": tuple(data["running"])})


@dataclass(frozen=True, slots=True)
class VersionEvent:
    """A version cannot be started (``failed``), or may be tried again (not failed)."""

    name: str
    version: int
    failed: bool
    wire: int = 0
    message: str = ""
    output: str = ""
    """The last lines its replicas wrote, for the author."""
    retry_after_s: float = 0.0
    """After so many seconds the node will try again when asked."""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.version)

    def error(self) -> DespinaError:
        """When failed: what whoever asks for the version is told, and when asking again may help."""
        message = self.message or f"{self.ref} cannot start"
        error = from_wire(self.wire, message) if self.wire else StartFailed(message)
        error.retry_after_s = self.retry_after_s
        return error

    def to_json(self) -> dict[str, Any]:
        return {"event": "version", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VersionEvent:
        return cls(**{key: value for key, value in data.items() if key != "event"})
