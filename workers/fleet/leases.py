"""The leases that the parts of one process hold, added up to the one lease a node knows of this client and version. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from functions.names import Ref


class Leases:
    """A node keeps one lease a client and version, so a roll-out that wants 4 and a router that wants 1 must not overwrite each
    other: told is the largest count of the living, for as long as the longest of them lives; when the largest ends, it is told
    again."""

    def __init__(self) -> None:
        self._held: dict[Ref, dict[str, tuple[int, float]]] = {}

    def put(self, ref: Ref, holder: str, count: int, until: float) -> None:
        """Count 0 gives the holder's lease up."""
        holders = self._held.setdefault(ref, {})
        if count > 0:
            holders[holder] = (count, until)
        else:
            holders.pop(holder, None)
            if not holders:
                del self._held[ref]

    def told(self, ref: Ref, now: float) -> tuple[int, float]:
        """(count, seconds to live) as of ``now``; (0, 0) when nobody holds one."""
        living = [(count, until) for count, until in self._held.get(ref, {}).values() if until > now]
        return (max(count for count, _ in living), max(until for _, until in living) - now) if living else (0, 0.0)

    def living(self, now: float) -> Iterator[tuple[Ref, int, float]]:
        """Every version with a living lease: (ref, count, seconds to live)."""
        for ref in list(self._held):
            count, ttl_s = self.told(ref, now)
            if count:
                yield ref, count, ttl_s

    def ended(self, now: float) -> list[Ref]:
        """Drop the leases that have ended; the versions that lost one."""
        lost = []
        for ref, holders in list(self._held.items()):
            over = [holder for holder, (_, until) in holders.items() if until <= now]
            for holder in over:
                del holders[holder]
            if over:
                lost.append(ref)
            if not holders:
                del self._held[ref]
        return lost
