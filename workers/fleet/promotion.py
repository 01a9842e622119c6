"""What a roll-out tells: how a move ended, what became of its dependents, what was published."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from functions.errors import DespinaError
from functions.records import VersionRecord

WAIT_S = 60.0
"""Seconds a roll-out waits for its targets to be ready, and then for their dependents, where nothing else is said."""


class Dependents(StrEnum):
    """What becomes of the functions that follow one that moves."""

    MOVE = "move"
    """They follow where they can; one that cannot stays, and is reported."""
    KEEP = "keep"
    """They stay."""
    REQUIRE = "require"
    """All must be able to follow, or nothing moves."""


class Outcome(StrEnum):
    """How it ended for one function."""

    MOVED = "moved"
    SKIPPED = "skipped"
    """It was not asked to move."""
    STAYED = "stayed"
    """A dependent that was held, split, kept, or could not follow; its old lock still works."""
    FAILED = "failed"
    """The target could not be made ready, a dependent that had to could not follow, or the move was refused; no tag has moved."""


@dataclass(frozen=True, slots=True)
class Dependent:
    name: str
    state: Outcome
    reason: str = ""
    version: int = 0
    """Where its tag points now."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": str(self.state), "reason": self.reason, "version": self.version}


@dataclass(frozen=True, slots=True)
class Promotion:
    state: Outcome
    reason: str = ""
    dependents: tuple[Dependent, ...] = ()
    error: DespinaError | None = None
    """What ``reason`` says, when it failed."""

    def to_json(self) -> dict[str, Any]:
        return {"state": str(self.state), "reason": self.reason, "dependents": [dependent.to_json() for dependent in self.dependents]}


@dataclass(frozen=True, slots=True)
class Published:
    record: VersionRecord
    created: bool
    """False: the same content and lock was there already, as this version."""
    tags: tuple[str, ...]
    """Those that point at the version now."""
    promotion: Promotion

    def to_json(self) -> dict[str, Any]:
        record = self.record.to_json()
        shown = {key: record[key] for key in ("name", "version", "digest", "lock", "size_bytes", "warnings")}
        return {**shown, "tags": list(self.tags), "promotion": self.promotion.to_json()}
