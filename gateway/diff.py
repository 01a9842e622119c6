"""What differs between two versions of a function. Pure: two records as the version route shows them go in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """One difference. ``part`` is files, config, manifest, lock or environment; None stands for "not there"."""

    part: str
    what: str
    before: Any
    after: Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """From one version record to another, sorted by part and name."""
    return [
        *_between("files", _files(before), _files(after)),
        *_between("config", dict(_leaves(before["config"])), dict(_leaves(after["config"]))),
        *_between("manifest", dict(_leaves(before["manifest"])), dict(_leaves(after["manifest"]))),
        *_between("lock", _lock(before), _lock(after)),
        *_between("environment", {"": before["environment"]}, {"": after["environment"]}),
    ]


def _between(part: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for what in sorted(before.keys() | after.keys()):
        if before.get(what) != after.get(what):
            yield Difference(part, what, before.get(what), after.get(what))


def _files(record: Mapping[str, Any]) -> dict[str, str]:
    return {path: f"{sha256[:12]} {size} bytes{' x' if executable else ''}" for path, (sha256, size, executable) in record["files"].items()}


def _lock(record: Mapping[str, Any]) -> dict[str, Any]:
    return {callee: edge["version"] for callee, edge in record["lock"].items()}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": [{"b": 1}]}`` → ``("a[0].b", 1)``"""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{index}]")
    else:
        yield path, value
