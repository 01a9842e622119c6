"""Versions come and go: a number for a new one, the end of an old one."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from functions.errors import Conflict, NotFound
from functions.names import Ref
from functions.records import VersionRecord, dump
from registry import keys
from registry.catalog import Catalog
from registry.stores.base import Store

ABANDONED_S = 600.0
"""Age in seconds at which a deletion that has not been decided never will be: its process died. Deciding takes one listing."""


class Versions:
    """Gives numbers to versions, and deletes them, among any number of processes that do the same."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def keep(self, draft: VersionRecord) -> tuple[VersionRecord, bool]:
        """Write ``draft`` down under the function's next number, or find the version that has its digest already. Answers the
        version, and whether it is new. All that the record names must be in the store by now."""
        self._catalog.refresh(draft.name)
        while True:
            existing = self._catalog.find(draft.name, draft.digest)
            if existing is not None:
                return existing, False
            record = replace(draft, version=self._catalog.last(draft.name) + 1)
            key = keys.version(record.name, record.version)
            if self._store.create(key, dump(record)):
                self._catalog.note_version(record)
                return record, True
            # Look again: the version of the writer that was faster may be this very one.
            self._catalog.give_way(key)

    def delete(self, name: str, version: int, by: str, at: str) -> None:
        """End a version. Its record stays in the store, marked, so that its number is never given again. Raises NotFound, and
        Conflict while it is tagged or reached from a version that is.

        A deleter announces itself and then reads the tags; a mover writes its tag and then looks for announcements (see
        ``ending``). So of a deletion and a move at the same moment at least one sees the other and gives way.
        """
        self._catalog.refresh(name)
        self._catalog.record(name, version)
        announcement = keys.deleting(name, version, uuid4().hex)
        note = json.dumps({"at": at, "by": by}).encode() + b"\n"
        self._store.put(announcement, note)
        try:
            self._catalog.refresh()
            self._refuse_reached(Ref(name, version))
            self._store.create(keys.deleted(name, version), note)
        finally:
            self._store.delete(announcement)
        self._catalog.note_deleted(name, version)

    def ending(self, ref: Ref, now: float) -> bool:
        """Whether a version is deleted, or its deletion is being decided, in the store at this moment."""
        announced = self._store.list(keys.deleting(*ref))
        return any(entry.modified_s > now - ABANDONED_S for entry in announced) or self._store.size(keys.deleted(*ref)) is not None

    def _refuse_reached(self, ref: Ref) -> None:
        for function in self._catalog.functions():
            for tag, record in self._catalog.tags(function).items():
                for version in sorted(record.versions):
                    if ref == Ref(function, version):
                        raise Conflict(f"{ref} cannot be deleted: the tag '{tag}' points at it")
                    if self._reaches(Ref(function, version), ref):
                        raise Conflict(f"{ref} cannot be deleted: {function}@{version}, which the tag '{tag}' points at, is locked to it")

    def _reaches(self, root: Ref, ref: Ref) -> bool:
        try:
            return any(member.ref == ref for member in self._catalog.closure(root))
        except NotFound:
            # A graph with a deleted member cannot run; it holds nothing back.
            return False
