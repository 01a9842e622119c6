"""What a replica is told when it is born: its closure, its lane, its page. JSON, so that it crosses any boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from functions.names import Ref


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One version in the closure, and where its files lie."""

    name: str
    version: int
    digest: str
    model_dir: str
    """The bundle's root on this machine: ``config.pbtxt`` lies here, and ``<version>/``, and a link from the author's own
    directory name to it. What Triton calls the model directory (``args["model_repository"]``)."""
    config: Mapping[str, Any]
    """Normalised JSON configuration."""
    lock: Mapping[str, int] = field(default_factory=dict)
    """Callee name → version, as this member's calls resolve."""
    shared: tuple[str, ...] = ()
    """Those callees of ``lock`` that are reached over the link, not in this process."""
    threads: int = 1
    """Instances of a native member in this lane; a Python member always has one."""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.version)

    @property
    def version_dir(self) -> str:
        return f"{self.model_dir}/{self.version}"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One process: one lane of one replica."""

    id: str
    """Unique on the machine, also the name of its page and of its log."""
    members: tuple[MemberSpec, ...]
    """The closure, the root first."""
    token: str
    """64 hex digits; a HELLO must carry the same 32 bytes."""
    epoch: int
    page: str
    """Path of the shared page, made by the node before the fork."""
    lane: int = 0
    lanes: int = 1
    timeout_s: float = 300.0
    body_bytes: int = 1 << 30

    @property
    def root(self) -> MemberSpec:
        return self.members[0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplicaSpec:
        members = tuple(MemberSpec(**{**member, "shared": tuple(member["shared"])}) for member in data["members"])
        return cls(**{**data, "members": members})
