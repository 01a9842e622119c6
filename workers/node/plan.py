"""What a version needs on this machine: the files of its whole closure, and how it becomes processes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from functions.errors import NotFound
from functions.names import Ref
from functions.records import VersionRecord
from registry.cache import Cache
from registry.catalog import Catalog
from workers.process.layout import layout
from workers.process.spec import MemberSpec

_BASE_BYTES = 64 << 20
"""What a replica takes before it has loaded anything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A version that can be started: its files are here."""

    ref: Ref
    digest: str
    members: tuple[MemberSpec, ...]
    """The closure, the root first."""
    lanes: int
    timeout_s: float
    kill_s: float
    """How long one batch may run before its process is killed as hung."""
    body_bytes: int
    memory_bytes: int
    """About what one lane takes."""


class Planner:
    """Makes plans. Blocks on the store and the disk: called from threads, several at once."""

    def __init__(self, catalog: Catalog, cache: Cache) -> None:
        self._catalog, self._cache = catalog, cache

    def plan(self, ref: Ref) -> Plan:
        """Fetch what the version's closure lacks on this machine. Raises NotFound, StoreUnreachable, NoCapacity (larger than the
        cache) or InternalError (damaged in the store)."""
        records = self._closure(ref)
        root = records[0]
        shape = layout({record.ref: record.config for record in records})
        limits = root.manifest["limits"]
        members = tuple(self._member(record, shape.threads[record.ref]) for record in records)
        return Plan(
            ref=ref,
            digest=root.digest,
            members=members,
            lanes=shape.lanes,
            timeout_s=limits["timeout_s"],
            kill_s=limits["kill_s"],
            body_bytes=limits["body_mb"] << 20,
            # A model takes about its file's size twice while it is loaded: the file's bytes and the weights made of them.
            memory_bytes=_BASE_BYTES + 2 * sum(record.size_bytes for record in records),
        )

    def _closure(self, ref: Ref) -> list[VersionRecord]:
        try:
            return self._catalog.closure(ref, inside=True)
        except NotFound:  # published since this process last looked
            self._catalog.refresh()
            return self._catalog.closure(ref, inside=True)

    def _member(self, record: VersionRecord, threads: int) -> MemberSpec:
        return MemberSpec(
            name=record.name,
            version=record.version,
            digest=record.digest,
            model_dir=str(self._cache.materialise(record)),
            config=json.loads(json.dumps(record.config)),
            lock={callee: edge.version for callee, edge in record.lock.items()},
            shared=tuple(sorted(callee for callee, edge in record.lock.items() if edge.shared)),
            threads=threads,
        )
