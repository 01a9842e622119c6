"""Deploying bundles: callees first, only the bytes that are missing, and one release for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

from functions.bundle import CONFIG, MANIFEST, scan, sources
from functions.calls import declared_calls
from functions.config import checks, text
from functions.errors import BundleRefused, DespinaError, InvalidRequest
from functions.manifest import parse as parse_manifest
from functions.names import function_name
from functions.records import File
from gateway.client import Client
from workers.fleet.promotion import Dependents, Outcome, Promotion


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on this machine's disk."""

    name: str
    root: Path
    files: Mapping[str, File]
    calls: frozenset[str]
    """Functions it calls, as far as can be seen from here."""


class Watcher(Protocol):
    """Told how an upload goes."""

    def begin(self, name: str, size_bytes: int, missing_bytes: int) -> None: ...

    def sent(self, size_bytes: int) -> None: ...

    def recorded(self, version: Mapping[str, Any]) -> None: ...


def read(paths: Sequence[Path], name: str | None = None) -> list[Bundle]:
    """The bundles in the order in which they must be recorded: callees before callers. ``name`` is for a single one; the others
    are called like their directories. Raises InvalidRequest, BundleRefused."""
    if name is not None and len(paths) != 1:
        raise InvalidRequest(f"--name is for one bundle, and there are {len(paths)}")
    bundles = {bundle.name: bundle for bundle in (_read(path, name) for path in paths)}
    if len(bundles) != len(paths):
        raise InvalidRequest("two bundles have the same name")
    sorter = TopologicalSorter({bundle.name: bundle.calls & bundles.keys() for bundle in bundles.values()})
    try:
        return [bundles[name] for name in sorter.static_order()]
    except CycleError as error:
        raise BundleRefused(f"these bundles call each other in a circle: {' → '.join(error.args[1])}") from None


def deploy(
    client: Client, bundles: Sequence[Bundle], watcher: Watcher, *, tag: str, promote: bool, dependents: Dependents, wait_s: float
) -> dict[str, Any]:
    """Record all, then move the tag of all by one release; what the server said of each, and of the release.

    ``{"versions": […], "tag": …, "tags": {name: {"before": 1, "after": 2}}, "promotion": {state, reason, dependents}}``. Without
    ``promote`` no tag moves; a release that is refused is a promotion of state ``failed``, since what is recorded stays."""
    recorded: dict[str, int] = {}
    versions = []
    for bundle in bundles:
        _send(client, bundle, watcher)
        with_ = {callee: recorded[callee] for callee in sorted(bundle.calls & recorded.keys())}
        version = client.record(bundle.name, bundle.files, with_)
        recorded[bundle.name] = version["version"]
        versions.append(version)
        watcher.recorded(version)
    if not promote:
        skipped = Promotion(Outcome.SKIPPED, "it was not asked to be promoted").to_json()
        return {"versions": versions, "tag": tag, "tags": {}, "promotion": skipped}
    before = {name: client.pointed(name, tag) for name in recorded}
    after: dict[str, int | None] = dict(recorded)
    try:
        released = client.release(recorded, tag, dependents, wait_s)
    except DespinaError as error:
        after = {name: client.pointed(name, tag) for name in recorded}
        released = {"promotion": Promotion(Outcome.FAILED, str(error)).to_json()}
    tags = {name: {"before": before[name], "after": after[name]} for name in recorded}
    return {**released, "versions": versions, "tag": tag, "tags": tags}


def _send(client: Client, bundle: Bundle, watcher: Watcher) -> None:
    where = {file.sha256: (bundle.root / path, file.size) for path, file in bundle.files.items()}
    missing = client.missing({sha256: size for sha256, (_, size) in where.items()})
    watcher.begin(bundle.name, sum(size for _, size in where.values()), sum(where[sha256][1] for sha256 in missing))
    for sha256 in missing:
        client.put_blob(sha256, where[sha256][0], watcher.sent)


def _read(path: Path, name: str | None) -> Bundle:
    root = path.resolve()
    if not root.is_dir():
        raise InvalidRequest(f"{path} is not a directory")
    name = function_name(name or root.name)
    files = scan(root)
    if not files:
        raise BundleRefused(f"{path} holds no file")
    return Bundle(name, root, files, _calls(root, name, files))


def _calls(root: Path, name: str, files: Mapping[str, File]) -> frozenset[str]:
    """For the order only. A bundle that cannot be read here is refused by the server, which says why."""
    try:
        config = text.parse((root / CONFIG).read_text()) if CONFIG in files else {}
        manifest = parse_manifest((root / MANIFEST).read_text() if MANIFEST in files else "").to_json()
        full = checks.normalise(config, name, [], directory=root.name)
        return frozenset(declared_calls(full, manifest, sources(root, files))[0])
    except (BundleRefused, UnicodeDecodeError):
        return frozenset()
