"""What a version's manifest, and an operator's override of it, say to those who queue its calls and keep it warm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.fleet.policies import scale_of


@dataclass(frozen=True, slots=True)
class Terms:
    queue: int = 1000
    """Most calls that may wait in one router (``limits.queue``)."""
    idle_s: float = 60.0
    """Seconds a replica stays warm after the last call (``scale.idle_s``)."""

    rate: float | None = None
    """Most calls a second that one router lets in (``limits.rate``); None = no limit."""
    idempotent: bool = False
    """A call that a dying replica had begun may be run again (``retry.idempotent``)."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any], override: Mapping[str, Any]) -> Terms:
        """From a version record's manifest, which holds every key, and the function's scale override."""
        return cls(
            rate=manifest["limits"]["rate"],
            queue=int(manifest["limits"]["queue"]),
            idle_s=float(scale_of(manifest, override)["idle_s"]),
            idempotent=bool(manifest["retry"]["idempotent"]),
        )
