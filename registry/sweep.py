"""Removing blobs that nothing needs: neither a version that can be called, nor a publish that may be under way."""

from __future__ import annotations

from typing import NamedTuple

from registry import keys
from registry.catalog import Catalog
from registry.stores.base import Entry, Store

KEEP_S = 86_400.0
"""How long a blob stays after it was last put or touched, in seconds: the time a publish has between its first blob and its record."""


class Swept(NamedTuple):
    """What one sweep removed."""

    blobs: int
    size_bytes: int


def sweep(store: Store, now: float) -> Swept:
    """Remove every blob that no version uses and nobody touched since ``now - KEEP_S``. Raises StoreUnreachable.

    Candidates are listed before the versions are read: a version recorded after that listing has touched its blobs, so
    they are seen to be young when each candidate is looked at again. What slips between that look and the removal, the
    publisher finds and puts again (``Registry.record``).
    """
    old = [entry for entry in store.list(keys.BLOBS) if entry.modified_s < now - KEEP_S]
    if not old:
        return Swept(0, 0)
    needed = _needed(store)
    removed = [entry for entry in old if keys.blob_sha256(entry.key) not in needed and _still(store, entry)]
    return Swept(len(removed), sum(entry.size for entry in removed))


def _still(store: Store, entry: Entry) -> bool:
    """Remove the blob if it is as old as it was; whether it was removed."""
    if entry not in store.list(entry.key):
        return False
    store.delete(entry.key)
    return True


def _needed(store: Store) -> set[str]:
    """The sha256 of all files of all versions, read anew: what another process recorded counts too."""
    catalog = Catalog(store)
    catalog.load()
    return {
        file.sha256
        for name in catalog.functions()
        for version in catalog.versions(name)
        for file in catalog.record(name, version).files.values()
    }
