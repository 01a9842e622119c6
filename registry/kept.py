"""What a catalog knows about one function: a frozen value that only ever grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.records import TagRecord


@dataclass(frozen=True, slots=True)
class Kept:
    """One function as some reader saw the store. Versions, deletions and epochs are only ever added to a store, so two of these
    merge into what both saw, whichever was older: a slow listing never takes back what a faster writer noted."""

    last: int = 0
    """The highest number ever given to a version. Numbers are given without gaps: all from 1 to it are recorded, even if a listing
    that ran meanwhile missed some."""
    deleted: frozenset[int] = frozenset()
    tags: Mapping[str, TagRecord] = field(default_factory=dict)
    """Where each tag points now."""
    scale_epoch: int = 0
    scale: Mapping[str, Any] = field(default_factory=dict)
    """What overrides the versions' own ``[scale]``; empty is nothing."""
    versions: frozenset[int] = field(init=False)
    """Those that can be called: recorded and not deleted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", frozenset(range(1, self.last + 1)) - self.deleted)

    def merged(self, other: Kept) -> Kept:
        """What this and ``other`` saw together; equal to this when the other knows nothing new."""
        newer = other if other.scale_epoch > self.scale_epoch else self
        return Kept(
            max(self.last, other.last),
            self.deleted | other.deleted,
            _latest(self.tags, other.tags),
            newer.scale_epoch,
            newer.scale,
        )


def _latest(ours: Mapping[str, TagRecord], theirs: Mapping[str, TagRecord]) -> Mapping[str, TagRecord]:
    news = {tag: record for tag, record in theirs.items() if tag not in ours or ours[tag].epoch < record.epoch}
    return {**ours, **news} if news else ours
