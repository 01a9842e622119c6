"""Who wants how many replicas of what, and until when. Time is an argument."""

from __future__ import annotations

from typing import NamedTuple

from functions.names import Ref


class Lease(NamedTuple):
    """So many replicas, until that time."""

    replicas: int
    until: float


class Leases:
    """One lease a client and version; the largest of those that live counts."""

    def __init__(self) -> None:
        self._of: dict[Ref, dict[str, Lease]] = {}

    def put(self, client: str, ref: Ref, count: int, until: float) -> None:
        """Renew, change or (count 0) give up one client's lease."""
        if count > 0:
            self._of.setdefault(ref, {})[client] = Lease(count, until)
        else:
            self._of.get(ref, {}).pop(client, None)

    def wanted(self, ref: Ref, now: float) -> int:
        """How many replicas of ``ref`` are to be held at ``now``. Leases that have ended are forgotten."""
        clients = self._of.get(ref, {})
        for client in [client for client, lease in clients.items() if lease.until <= now]:
            del clients[client]
        if not clients:
            self._of.pop(ref, None)
        return max((lease.replicas for lease in clients.values()), default=0)

    def refs(self) -> list[Ref]:
        """Every version that somebody wanted and that has not been asked about since its leases ended."""
        return list(self._of)
