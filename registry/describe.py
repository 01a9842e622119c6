"""A function as people look at it: plain data for its page and for the command line."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from functions.records import TagRecord, VersionRecord
from registry.catalog import Catalog


def describe(catalog: Catalog, name: str) -> dict[str, Any]:
    """``{name, tags: {tag: …}, versions: […], scale: {…}}``, versions newest first. Raises NotFound."""
    tags = catalog.tags(name)
    tagged: dict[int, list[str]] = defaultdict(list)
    for tag, record in sorted(tags.items()):
        for version in record.versions:
            tagged[version].append(tag)
    return {
        "name": name,
        "tags": {tag: move(record) for tag, record in sorted(tags.items())},
        "versions": [{**summary(catalog.record(name, version)), "tags": tagged[version]} for version in reversed(catalog.versions(name))],
        "scale": dict(catalog.scale(name)),
    }


def move(record: TagRecord) -> dict[str, Any]:
    """One epoch of a tag: where it points, and who moved it there when and why."""
    shown = {key: value for key, value in record.to_json().items() if key not in ("format", "name")}
    return {"version": record.version, **shown}


def summary(record: VersionRecord) -> dict[str, Any]:
    """A version without its files, configuration and manifest."""
    return {
        "version": record.version,
        "digest": record.digest,
        "origin": record.origin,
        "created": record.created,
        "by": record.by,
        "size_bytes": record.size_bytes,
        "lock": {callee: edge.version for callee, edge in sorted(record.lock.items())},
        "warnings": list(record.warnings),
    }
