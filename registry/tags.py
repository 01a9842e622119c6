"""Tags move: one conditional write is the compare-and-swap, the history and the ETag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from functions.errors import Conflict, InvalidRequest, NotFound, PreconditionFailed
from functions.names import Ref, version_number
from functions.records import TagRecord, Target, dump
from registry import keys
from registry.catalog import Catalog
from registry.stores.base import Store
from registry.versions import Versions


class Tags:
    """Moves tags, among any number of processes that do the same."""

    def __init__(self, store: Store, catalog: Catalog, versions: Versions) -> None:
        self._store = store
        self._catalog = catalog
        self._versions = versions

    def move(self, wanted: TagRecord, expect: int | None, now: float) -> TagRecord:
        """Write ``wanted`` as the tag's next epoch (its own epoch is not looked at), and answer what was written. A tag that points there
        already, and is as held, is answered as it is. Raises NotFound for a version that does not exist, InvalidRequest for bad
        targets, PreconditionFailed when ``expect`` is given and the tag is at another epoch (0: does not exist yet), Conflict when
        a version it would reach is being deleted."""
        _check(wanted.targets)
        reached = self._reached(wanted)
        while True:
            current = self._current(wanted.name, wanted.tag, expect)
            if current is not None and (current.targets, current.held) == (wanted.targets, wanted.held):
                return current
            record = replace(wanted, epoch=current.epoch + 1 if current else 1)
            key = keys.tag(record.name, record.tag, record.epoch)
            if self._store.create(key, dump(record)):
                break
            self._catalog.give_way(key)
        self._catalog.note_tag(record)
        self._give_way_to_deletion(record, current, reached, now)
        return record

    def before(self, name: str, tag: str) -> int:
        """The version that the tag pointed at before the one it points at now. Raises NotFound, and Conflict when there is none."""
        history = self._catalog.history(name, tag)
        versions = [move.version for move in history]
        earlier = [version for version in versions if version != versions[0]]
        if not earlier:
            raise Conflict(f"the tag '{tag}' of '{name}' has never pointed at anything but version {versions[0]}")
        return self._existing(name, earlier[0])

    def named(self, name: str, to: int | str) -> int:
        """The version that a number, as such or as text, or another tag names. Raises NotFound, InvalidRequest."""
        if isinstance(to, int):
            return self._existing(name, to)
        if to[:1].isdigit():
            return self._existing(name, version_number(to))
        return self._existing(name, self._catalog.tag(name, to).version)

    def _existing(self, name: str, version: int) -> int:
        return self._catalog.record(name, version).version

    def _current(self, name: str, tag: str, expect: int | None) -> TagRecord | None:
        current = self._catalog.kept(name).tags.get(tag)
        if expect is None or expect == (current.epoch if current else 0):
            return current
        self._catalog.refresh(name)
        current = self._catalog.kept(name).tags.get(tag)
        epoch = current.epoch if current else 0
        if epoch != expect:
            raise PreconditionFailed(f"the tag '{tag}' of '{name}' is at epoch {epoch}, not {expect}")
        return current

    def _reached(self, record: TagRecord) -> list[Ref]:
        """Everything the tag would reach. Raises NotFound if any of it does not exist, also after a second look at the store."""
        try:
            return self._closures(record)
        except NotFound:
            self._catalog.refresh()
            return self._closures(record)

    def _closures(self, record: TagRecord) -> list[Ref]:
        return [member.ref for version in sorted(record.versions) for member in self._catalog.closure(Ref(record.name, version))]

    def _give_way_to_deletion(self, record: TagRecord, before: TagRecord | None, reached: Sequence[Ref], now: float) -> None:
        ending = [str(ref) for ref in reached if self._versions.ending(ref, now)]
        if not ending:
            return
        if before is not None:
            undone = replace(before, epoch=record.epoch + 1, reason="undone")
            # If the name is taken, the tag has moved on and there is nothing to undo.
            if self._store.create(keys.tag(undone.name, undone.tag, undone.epoch), dump(undone)):
                self._catalog.note_tag(undone)
        raise Conflict(f"the tag '{record.tag}' of '{record.name}' cannot move to {record.version}: {', '.join(ending)} is being deleted")


def _check(targets: Sequence[Target]) -> None:
    """Raises InvalidRequest unless there is a target, each version is named once, and all weights are positive."""
    versions = [target.version for target in targets]
    if not targets or len(set(versions)) < len(versions) or not all(0 < target.weight < float("inf") for target in targets):
        raise InvalidRequest(
            f"a tag needs at least one version, each once, with a positive weight; given {[list(target) for target in targets]}"
        )
