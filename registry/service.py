"""The registry: the one way in which functions are recorded, tagged, re-locked and deleted.

A version's record is the last thing written, with a conditional put: whoever sees it can fetch all of it, and a
publisher that dies at any point leaves either a whole version or nothing that anybody sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from functions import graph
from functions.bundle import Inspected
from functions.config.spec import ModelConfig
from functions.errors import BundleRefused, Conflict
from functions.names import LIVE, Ref, function_name, tag_name
from functions.paths import Limits, checked
from functions.records import Locked, TagRecord, Target, VersionRecord, content_digest, version_digest
from registry import keys, lock, relock
from registry.blobs import Blobs
from registry.catalog import Catalog
from registry.describe import describe
from registry.relock import Pointer, Relock
from registry.stores.base import Store
from registry.sweep import Swept, sweep
from registry.tags import Tags
from registry.versions import Versions


class Registry:
    """Everything that may be done to the functions of one store. Every method may be called from any thread, waits for the store, and
    raises StoreUnreachable when it does not answer; other processes may do the same to the same store. What this process wrote is
    in its ``catalog`` when the method returns. ``clock`` answers seconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store = store
        self.catalog = Catalog(store)
        self._clock = clock
        self._blobs = Blobs(store)
        self._versions = Versions(store, self.catalog)
        self._tags = Tags(store, self.catalog, self._versions)

    # Uploading.

    def missing(self, wanted: Mapping[str, int]) -> list[str]:
        """Of ``wanted`` (sha256 → size in bytes), the blobs the store lacks; the others stay for at least a day. Raises
        InvalidRequest for what cannot be a sha256, or a size that is not the stored one."""
        return self._blobs.missing(wanted)

    def put_blob(self, sha256: str, path: Path) -> None:
        """Store the bytes of the file ``path``. Raises InvalidRequest when their digest is another."""
        self._blobs.put(sha256, path)

    def fetch_blob(self, sha256: str, path: Path) -> None:
        """Write a blob's bytes to the new file ``path``, checked. Raises NotFound."""
        self._blobs.fetch(sha256, path)

    def record(self, inspected: Inspected, name: str, by: str, with_: Mapping[str, int] | None = None) -> tuple[VersionRecord, bool]:
        """Record an inspected bundle as a version of ``name``, its files put into the store from ``inspected.staging``. Answers
        the version and whether it is new: the same content and lock is the same version.

        ``with_`` (callee → version) are versions that the same release is about to move: callees that follow a tag are locked to
        them. Raises BundleRefused for a missing callee or a graph that does not fit, InvalidRequest for a bad name. No tag moves.
        """
        _check_paths(inspected.files)
        name = function_name(name)
        locked = self._resolve(inspected, name, with_ or {})
        content = content_digest(inspected.files)
        draft = VersionRecord(
            name=name,
            version=0,
            digest=version_digest(content, locked, inspected.environment),
            content=content,
            files=inspected.files,
            config=inspected.config,
            manifest=inspected.manifest,
            author_dir=inspected.author_dir,
            lock=locked,
            environment=inspected.environment,
            created=self._now(),
            by=by,
            warnings=tuple(inspected.warnings),
        )
        self._check_graph(draft)
        self.catalog.refresh(name)
        existing = self.catalog.find(name, draft.digest)
        if existing is not None:
            return existing, False
        paths = {file.sha256: inspected.staging / path for path, file in inspected.files.items()}
        sizes = {file.sha256: file.size for file in inspected.files.values()}
        self._blobs.put_missing(paths, sizes)
        record, created = self._versions.keep(draft)
        # A sweep that had judged a reused blob before it was touched may have taken it meanwhile; from here on it is referenced.
        self._blobs.put_missing(paths, sizes)
        return record, created

    # Tags.

    def move(
        self,
        name: str,
        tag: str,
        targets: int | Sequence[Target],
        by: str,
        release: str,
        expect: int | None = None,
        held: bool = False,
        reason: str = "set",
    ) -> TagRecord:
        """Point a tag at a version, or at several with weights. ``expect`` is the epoch it must be at (0: not exist yet). A tag that
        is there already, and as ``held`` as asked, is answered unchanged. Dependents do not move by this: see ``plan``.

        Raises NotFound for a function or version that does not exist, InvalidRequest for a bad tag or targets,
        PreconditionFailed for another epoch, Conflict when a version it would reach is being deleted."""
        wanted = TagRecord(
            name=name,
            tag=tag_name(tag),
            epoch=0,
            targets=(Target(targets),) if isinstance(targets, int) else tuple(targets),
            at=self._now(),
            by=by,
            release=release,
            held=held,
            reason=reason,
        )
        return self._tags.move(wanted, expect, self._clock())

    def rollback_version(self, name: str, tag: str = LIVE, to: int | str | None = None) -> int:
        """The version a rollback of the tag goes to: ``to`` as a number or another tag's name, or by default what the tag pointed at
        before. Nothing moves by this. Raises NotFound, InvalidRequest, and Conflict when there is no before."""
        self.catalog.refresh(name)
        return self._tags.before(name, tag) if to is None else self._tags.named(name, to)

    # Re-locking.

    def plan(self, moves: Mapping[str, int], tag: str = LIVE, stay: Collection[str] = ()) -> list[Relock]:
        """What else moves when ``tag`` of each function in ``moves`` moves to that version: the dependents, callees before callers,
        each once; with ``passed`` set, those that stay where they are because they are held, split, or in ``stay``.

        The caller turns the steps without ``passed`` into versions by ``relock``, in order, and then moves their tags. When
        one cannot follow, it plans again with that name in ``stay``: steps that do not rest on it come out the same."""
        self.catalog.refresh()
        pointers = {
            Pointer(name, pointer_tag): record
            for name in self.catalog.functions()
            for pointer_tag, record in self.catalog.tags(name).items()
            if record.version in self.catalog.kept(name).versions
        }
        targets = {Pointer(name, tag): self.catalog.record(name, version).digest for name, version in moves.items()}
        return relock.plan(targets, pointers, self.catalog.record, self.catalog.find, stay)

    def relock(self, step: Relock, by: str) -> VersionRecord:
        """The version that ``step`` asks for: the existing one with that content and lock, or else a new one of origin ``relock``. No tag
        moves. Raises BundleRefused when the graph does not fit, Conflict when the step is passed by, or a callee it rests on
        has not been recorded."""
        if step.passed:
            raise Conflict(f"{step.name} does not follow: its tag '{step.tag}' is {step.passed}")
        base = self.catalog.record(step.name, step.base)
        locked = {callee: self._follow(step, callee, edge) for callee, edge in base.lock.items()}
        digest = version_digest(base.content, locked, base.environment)
        draft = replace(base, version=0, digest=digest, lock=locked, origin="relock", created=self._now(), by=by)
        self._check_graph(draft)
        self._blobs.missing({file.sha256: file.size for file in base.files.values()})
        return self._versions.keep(draft)[0]

    # The rest of a version's life.

    def delete_version(self, name: str, version: int, by: str = "") -> None:
        """End a version; its number is never given again. Raises NotFound, and Conflict while a tag points at it or at a version
        that is locked to it."""
        self._versions.delete(name, version, by, self._now())

    def scale(self, name: str) -> Mapping[str, Any]:
        """What overrides the versions' own ``[scale]``; empty where nothing does. Raises NotFound. Does not read the store."""
        return self.catalog.scale(name)

    def put_scale(self, name: str, scale: Mapping[str, Any]) -> None:
        """Override ``[scale]`` of every version of ``name``, now and after any deploy, by what the caller has checked. Raises NotFound."""
        self.catalog.refresh(name)
        data = json.dumps(dict(scale), sort_keys=True).encode() + b"\n"
        while True:
            epoch = self.catalog.kept(name).scale_epoch + 1
            key = keys.scale(name, epoch)
            if self.store.create(key, data):
                return self.catalog.note_scale(name, epoch, dict(scale))
            self.catalog.give_way(key)

    def clear_scale(self, name: str) -> None:
        """Let the versions' own ``[scale]`` hold again. Raises NotFound."""
        self.put_scale(name, {})

    def describe(self, name: str) -> dict[str, Any]:
        """A function as its page shows it: tags, versions newest first, scale. Raises NotFound."""
        return describe(self.catalog, name)

    def sweep(self) -> Swept:
        """Remove what no version needs and nobody has touched for a day."""
        return sweep(self.store, self._clock())

    def _resolve(self, inspected: Inspected, name: str, overlay: Mapping[str, int]) -> dict[str, Locked]:
        try:
            return lock.resolve(name, inspected.calls, self.catalog.tag, self.catalog.record, overlay)
        except BundleRefused:
            # The callee may have been deployed through another process a moment ago.
            if not self.catalog.refresh():
                raise
            return lock.resolve(name, inspected.calls, self.catalog.tag, self.catalog.record, overlay)

    def _follow(self, step: Relock, callee: str, edge: Locked) -> Locked:
        if callee not in step.edges:
            return edge
        target = self.catalog.find(callee, step.edges[callee])
        if target is None:
            raise Conflict(f"{step.name} cannot follow '{callee}' yet: the version of '{callee}' that it rests on is not recorded")
        return replace(edge, version=target.version, digest=target.digest)

    def _check_graph(self, draft: VersionRecord) -> None:
        """Raises BundleRefused unless the draft and what its lock reaches may run together."""
        root = Ref(draft.name, draft.version)
        graph.check_closure(root, lambda ref: draft.lock if ref == root else self.catalog.record(*ref).lock)
        config = ModelConfig.of(draft.config)
        if config.ensemble:
            callees = {callee: self.catalog.record(callee, edge.version).config for callee, edge in draft.lock.items()}
            graph.check_tensors(config, {callee: ModelConfig.of(callees[callee]) for callee in callees})

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_paths(paths: Collection[str]) -> None:
    """Raises BundleRefused for a path that would leave the bundle, or take the place of the version's directory: on a node that is
    named by its number. The inspection has checked this too, in a process that hostile files may have taken over."""
    for path in sorted(paths):
        checked(path, Limits())
        if path.isascii() and path.isdigit():
            raise BundleRefused("a file named like a version directory", field=path, fix="give the file another name")
