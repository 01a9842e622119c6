"""The store's functions in memory: who exists, where tags point, what each version is.

Readers never wait: they look into dictionaries that nobody changes. A writer makes a new dictionary and puts it in the old one's place.
The catalog learns what other processes wrote by ``refresh``, and what this process wrote by the ``note_…`` methods.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

from functions.errors import InternalError, NotFound
from functions.names import LIVE, Ref
from functions.records import TagRecord, VersionRecord
from registry import keys
from registry.kept import Kept
from registry.stores.base import Store

log = logging.getLogger(__name__)


class Catalog:
    """A view of one store. Empty until ``load``. Any method may be called from any thread; those that say so read the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._replacing = Lock()
        self._functions: dict[str, Kept] = {}
        # Written once for each key, never changed: plain dictionaries whose single operations are atomic. Records stay for the life
        # of the process, a few KB each.
        self._records: dict[Ref, VersionRecord] = {}
        self._epochs: dict[tuple[str, str, int], TagRecord] = {}
        self._strangers: set[str] = set()

    # What a call needs: dictionary look-ups only.

    def resolve(self, name: str, selector: str | None = None) -> TagRecord | int:
        """What a request for ``name`` and a version or tag (None: ``live``) reaches: a version's number, or a tag's record. Never
        reads the store. Raises NotFound in Triton's words."""
        kept = self._functions.get(name)
        if kept is None:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        record = kept.tags.get(LIVE if selector is None else selector)
        if record is not None:
            return record
        if selector is None:
            raise NotFound(f"Request for unknown model: '{name}' has no available versions")
        if selector.isascii() and selector.isdigit() and selector[0] != "0" and int(selector[:20]) in kept.versions:
            return int(selector)
        raise _no_version(name, selector)

    def reached(self, name: str, selector: str | None = None) -> Ref:
        """As ``resolve``, for who wants one version: a tag's own. Raises NotFound."""
        found = self.resolve(name, selector)
        return Ref(name, found if isinstance(found, int) else found.version)

    def peek(self, name: str, version: int) -> VersionRecord | None:
        """The record, if this process has read it already. Everything that a tag reached when it was last refreshed has been."""
        return self._records.get(Ref(name, version))

    # What exists.

    def functions(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._functions)

    def versions(self, name: str) -> list[int]:
        """The versions that can be called, ascending. Raises NotFound."""
        return sorted(self.kept(name).versions)

    def tags(self, name: str) -> Mapping[str, TagRecord]:
        """Tag → where it points now. Raises NotFound."""
        return self.kept(name).tags

    def tag(self, name: str, tag: str) -> TagRecord:
        """Raises NotFound for a function or tag that does not exist."""
        record = self.tags(name).get(tag)
        if record is None:
            raise NotFound(f"function '{name}' has no tag '{tag}'")
        return record

    def scale(self, name: str) -> Mapping[str, Any]:
        """What overrides ``[scale]`` of all versions; empty where nothing does. Raises NotFound."""
        return self.kept(name).scale

    def kept(self, name: str) -> Kept:
        """All that is known about one function. Raises NotFound."""
        kept = self._functions.get(name)
        if kept is None:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return kept

    def last(self, name: str) -> int:
        """The highest number ever given to a version of ``name``; 0 if there is no such function."""
        return self._functions.get(name, Kept()).last

    # What may read the store.

    def record(self, name: str, version: int) -> VersionRecord:
        """Raises NotFound for a version that does not exist or was deleted. Reads the store the first time."""
        if version not in self.kept(name).versions:
            raise _no_version(name, version)
        return self._record(Ref(name, version))

    def find(self, name: str, digest: str) -> VersionRecord | None:
        """The version of ``name`` with this digest; None if there is none, or no such function."""
        kept = self._functions.get(name, Kept())
        records = (self._record(Ref(name, version)) for version in sorted(kept.versions, reverse=True))
        return next((record for record in records if record.digest == digest), None)

    def history(self, name: str, tag: str | None = None) -> list[TagRecord]:
        """All moves of one tag, or of all tags of the function, the newest first. Raises NotFound."""
        latest = [self.tag(name, tag)] if tag else list(self.tags(name).values())
        moves = [self._epoch(name, last.tag, epoch) for last in latest for epoch in range(1, last.epoch + 1)]
        return sorted(moves, key=lambda move: (move.at, move.epoch), reverse=True)

    def closure(self, ref: Ref, *, inside: bool = False) -> list[VersionRecord]:
        """The version and everything it reaches by its lock, itself first, each once. ``inside``: only what lives in its own processes,
        not what it reaches over a ``shared`` edge. Raises NotFound if any of it is gone."""
        found: dict[Ref, VersionRecord] = {}
        todo = [ref]
        while todo:
            member = todo.pop()
            if member not in found:
                found[member] = self.record(*member)
                todo += [
                    Ref(callee, edge.version)
                    for callee, edge in sorted(found[member].lock.items(), reverse=True)
                    if not (inside and edge.shared)
                ]
        return list(found.values())

    def load(self) -> None:
        """Read the whole store. Raises StoreUnreachable."""
        self.refresh()

    def refresh(self, name: str | None = None) -> set[str]:
        """See what other processes wrote: one listing, then a read for each tag that moved and each version it newly reaches.
        With ``name``, of one function only. Answers the names of the functions that changed. Raises StoreUnreachable, with nothing
        changed."""
        listed: dict[str, list[keys.Parsed]] = defaultdict(list)
        for entry in self._store.list(keys.FUNCTIONS if name is None else keys.function(name)):
            parsed = keys.parse(entry.key)
            if parsed is not None:
                listed[parsed.name].append(parsed)
            elif entry.key not in self._strangers:
                self._strangers.add(entry.key)
                log.warning("store_key_unknown key=%s", entry.key)
        seen = {function: self._read(function, parsed) for function, parsed in listed.items()}
        self._read_reached(seen)
        return self._merge(seen)

    def give_way(self, key: str) -> None:
        """Another writer took ``key``, which this process wanted to create: see what it wrote. Raises InternalError if the store does
        not show it, since whoever tries again would try for ever."""
        parsed = keys.parse(key)
        assert parsed is not None
        self.refresh(parsed.name)
        kept = self._functions.get(parsed.name, Kept())
        tag = kept.tags.get(parsed.tag)
        latest = {"versions": kept.last, "tags": tag.epoch if tag else 0, "scale": kept.scale_epoch}[parsed.kind]
        if latest < parsed.number:
            raise InternalError(f"the store says that {key} exists, but does not list it")

    # What this process wrote.

    def note_version(self, record: VersionRecord) -> None:
        """This process recorded a version."""
        self._records[record.ref] = record
        self._merge({record.name: Kept(last=record.version)})

    def note_deleted(self, name: str, version: int) -> None:
        """This process deleted a version."""
        self._merge({name: Kept(deleted=frozenset({version}))})

    def note_tag(self, record: TagRecord) -> None:
        """This process moved a tag."""
        self._epochs[record.name, record.tag, record.epoch] = record
        self._merge({record.name: Kept(tags={record.tag: record})})

    def note_scale(self, name: str, epoch: int, scale: Mapping[str, Any]) -> None:
        """This process changed what overrides ``[scale]``."""
        self._merge({name: Kept(scale_epoch=epoch, scale=scale)})

    def _merge(self, seen: Mapping[str, Kept]) -> set[str]:
        with self._replacing:
            old = self._functions
            merged = {name: old.get(name, Kept()).merged(kept) for name, kept in seen.items()}
            changed = {name: kept for name, kept in merged.items() if name not in old or kept != old[name]}
            if changed:
                self._functions = {**old, **changed}
            return set(changed)

    def _read(self, name: str, listed: Iterable[keys.Parsed]) -> Kept:
        numbers: dict[str, set[int]] = defaultdict(set)
        epochs: dict[str, int] = {}
        for key in listed:
            if key.kind == "tags":
                epochs[key.tag] = max(key.number, epochs.get(key.tag, 0))
            else:
                numbers[key.kind].add(key.number)
        return Kept(
            max(numbers["versions"], default=0),
            frozenset(numbers["deleted"]),
            {tag: self._epoch(name, tag, epoch) for tag, epoch in epochs.items()},
            *self._read_scale(name, max(numbers["scale"], default=0)),
        )

    def _read_scale(self, name: str, epoch: int) -> tuple[int, Mapping[str, Any]]:
        known = self._functions.get(name, Kept())
        if epoch <= known.scale_epoch:
            return known.scale_epoch, known.scale
        return epoch, self._json(keys.scale(name, epoch))

    def _read_reached(self, seen: dict[str, Kept]) -> None:
        """Read the records of what the tags reach before anybody can ask for them on an event loop. What a lock names exists, even
        if the listing had passed its place before it was written."""
        todo = [Ref(name, version) for name, kept in seen.items() for record in kept.tags.values() for version in record.versions]
        done: set[Ref] = set()
        while todo:
            ref = todo.pop()
            if ref in done:
                continue
            done.add(ref)
            known = self._functions.get(ref.name, Kept()).merged(seen.get(ref.name, Kept()))
            if ref.version in known.deleted:
                continue
            try:
                lock = self._record(ref).lock
            except NotFound:
                log.error("version_record_missing version=%s", ref)
                continue
            todo += [Ref(callee, edge.version) for callee, edge in lock.items()]
            if ref.version > known.last:
                seen[ref.name] = known.merged(Kept(last=ref.version))

    def _record(self, ref: Ref) -> VersionRecord:
        record = self._records.get(ref)
        if record is None:
            record = VersionRecord.from_json(self._json(keys.version(*ref)))
            self._records[ref] = record
        return record

    def _epoch(self, name: str, tag: str, epoch: int) -> TagRecord:
        record = self._epochs.get((name, tag, epoch))
        if record is None:
            record = TagRecord.from_json(self._json(keys.tag(name, tag, epoch)))
            self._epochs[name, tag, epoch] = record
        return record

    def _json(self, key: str) -> Any:
        data = self._store.get(key)
        try:
            return json.loads(data)
        except ValueError as error:
            raise InternalError(f"{key} in the store is not JSON: {error}") from error


def _no_version(name: str, version: object) -> NotFound:
    return NotFound(f"Request for unknown model: '{name}' version {version} is not found")
