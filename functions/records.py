"""What the registry writes down about a function: its versions and its tags. Frozen, JSON in and out, nothing else.

The reasons behind each field: ``infra/decisions/0002-version-record.md`` and ``0003-tag-record.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from functions.errors import InternalError
from functions.names import Ref

FORMAT = 1


class File(NamedTuple):
    """One file of a bundle: lower-case hex sha256 of its bytes, its size in bytes, whether it may be executed."""

    sha256: str
    size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Locked:
    """One edge of a lock: the exact version of a callee that this version's calls reach."""

    version: int
    digest: str
    follow: str | None = "live"
    """The tag by which a re-lock resolves this edge again; None for an edge pinned by ``[calls] callee = {version = N}``."""
    shared: bool = False
    """Served by replicas of its own, reached over the link, instead of inside the caller's process."""
    via: str = "ensemble"
    """Where the edge comes from: ``ensemble``, ``manifest`` (function.toml) or ``source`` (a literal in model.py)."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One immutable version: content + lock + environment. Written once, last, with a conditional put."""

    name: str
    version: int
    digest: str
    """``sha256:<hex>`` over content, lock and environment: see :func:`version_digest`."""
    content: str
    """``sha256:<hex>`` over the files alone: see :func:`content_digest`. Equal content is how a re-lock finds an existing version."""
    files: Mapping[str, File]
    config: Mapping[str, Any]
    """The normalised config.pbtxt as JSON (Triton's snake_case form), completed from the model, name = the function's name."""
    manifest: Mapping[str, Any]
    """The checked function.toml with its defaults filled in."""
    author_dir: str
    """The bundle's own numeric directory (``"1"``), or ``""`` where there is none (an ensemble)."""
    lock: Mapping[str, Locked] = field(default_factory=dict)
    environment: str = ""
    """Hash of the resolved environment; ``""`` is the platform's own."""
    origin: str = "upload"
    """``upload``, or ``relock`` for a version that re-locking derived from another of the same content."""
    created: str = ""
    by: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.version)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "content": self.content,
            "origin": self.origin,
            "created": self.created,
            "by": self.by,
            "size_bytes": self.size_bytes,
            "author_dir": self.author_dir,
            "environment": self.environment,
            "files": {path: list(file) for path, file in sorted(self.files.items())},
            "config": dict(self.config),
            "manifest": dict(self.manifest),
            "lock": {
                callee: {"version": edge.version, "digest": edge.digest, "follow": edge.follow, "shared": edge.shared, "via": edge.via}
                for callee, edge in sorted(self.lock.items())
            },
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VersionRecord:
        """Raises InternalError when the record has a format this code does not know."""
        if data.get("format") != FORMAT:
            raise InternalError(f"version record of format {data.get('format')!r}; this release reads format {FORMAT}")
        return cls(
            name=data["name"],
            version=data["version"],
            digest=data["digest"],
            content=data["content"],
            files={path: File(*entry) for path, entry in data["files"].items()},
            config=data["config"],
            manifest=data["manifest"],
            author_dir=data["author_dir"],
            lock={callee: Locked(**edge) for callee, edge in data["lock"].items()},
            environment=data["environment"],
            origin=data["origin"],
            created=data["created"],
            by=data["by"],
            warnings=tuple(data["warnings"]),
        )


class Target(NamedTuple):
    """One version a tag points at, and the share of calls it takes (weights are relative)."""

    version: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class TagRecord:
    """Where a tag points since its last move. Written create-if-absent at ``tags/{tag}/{epoch}``: that one write is the
    compare-and-swap, the history and the ETag."""

    name: str
    tag: str
    epoch: int
    targets: tuple[Target, ...]
    at: str
    by: str
    release: str
    """One id for all moves of one request, the same in the history of every function it moved."""
    held: bool = False
    """Set by a rollback: re-locks pass this function by until its tag is moved by hand."""
    reason: str = ""
    """``promote``, ``rollback``, ``relock``, ``set``: why it moved."""

    @property
    def version(self) -> int:
        """The version with the largest weight; the first of equals."""
        return max(self.targets, key=lambda target: target.weight).version

    @property
    def versions(self) -> frozenset[int]:
        return frozenset(target.version for target in self.targets)

    @property
    def etag(self) -> str:
        return f'"{self.epoch}"'

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "tag": self.tag,
            "epoch": self.epoch,
            "targets": [{"version": target.version, "weight": target.weight} for target in self.targets],
            "at": self.at,
            "by": self.by,
            "release": self.release,
            "held": self.held,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TagRecord:
        """Raises InternalError when the record has a format this code does not know."""
        if data.get("format") != FORMAT:
            raise InternalError(f"tag record of format {data.get('format')!r}; this release reads format {FORMAT}")
        return cls(
            name=data["name"],
            tag=data["tag"],
            epoch=data["epoch"],
            targets=tuple(Target(target["version"], target["weight"]) for target in data["targets"]),
            at=data["at"],
            by=data["by"],
            release=data["release"],
            held=data["held"],
            reason=data["reason"],
        )


def content_digest(files: Mapping[str, File]) -> str:
    """Digest of a bundle's content: paths, x-bits and bytes; not times, not packaging. ``files`` must already be without
    ``__pycache__`` and rooted at the bundle. Canonical form: one line ``<x|-> <sha256> <size> <path>`` a file, sorted by path, UTF-8."""
    lines = (f"{'x' if file.executable else '-'} {file.sha256} {file.size} {path}\n" for path, file in sorted(files.items()))
    return _sha256(lines)


def version_digest(content: str, lock: Mapping[str, Locked], environment: str) -> str:
    """Digest of a version: content, lock (by the callees' digests, so that it is the same in every registry) and environment."""
    lines = [f"content {content}\n", f"environment {environment}\n"]
    lines += [
        f"lock {callee} {edge.digest} follow={'' if edge.follow is None else edge.follow} shared={int(edge.shared)}\n"
        for callee, edge in sorted(lock.items())
    ]
    return _sha256(lines)


def dump(record: VersionRecord | TagRecord) -> bytes:
    """The record as it lies in the store: UTF-8 JSON, sorted keys, a final newline."""
    return json.dumps(record.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _sha256(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
    return f"sha256:{digest.hexdigest()}"
