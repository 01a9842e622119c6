"""How the calls a bundle declares become a lock: each callee's exact version. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from functions.calls import CallDecl
from functions.errors import BundleRefused, NotFound
from functions.records import Locked, TagRecord, VersionRecord

_FIELDS = {"ensemble": "config.pbtxt: ensemble_scheduling", "manifest": "function.toml: [calls]", "source": "model.py"}


def resolve(
    name: str,
    calls: Mapping[str, CallDecl],
    tag: Callable[[str, str], TagRecord],
    record: Callable[[str, int], VersionRecord],
    overlay: Mapping[str, int],
) -> dict[str, Locked]:
    """The lock of a new version of ``name``. A callee that follows a tag is locked to the version in ``overlay`` (what the same
    release is about to move) or else to where ``tag(callee, tag)`` points; a pinned one to its pin. A call to ``name`` itself means
    the new version and is not locked. Raises BundleRefused, naming the callee, where there is nothing to lock."""
    lock: dict[str, Locked] = {}
    for callee, call in sorted(calls.items()):
        if callee == name:
            _refuse_pinned_self(name, call)
            continue
        try:
            version = _version(callee, call, tag, overlay)
            digest = record(callee, version).digest
        except NotFound as error:
            raise BundleRefused(
                f"calls '{callee}', but {_absent(callee, call, overlay)} ({error})",
                field=_FIELDS[call.via],
                fix=f"deploy '{callee}' first, or both in one release",
            ) from error
        lock[callee] = Locked(version, digest, call.follow, call.shared, call.via)
    return lock


def _version(callee: str, call: CallDecl, tag: Callable[[str, str], TagRecord], overlay: Mapping[str, int]) -> int:
    if call.pinned is not None:
        return call.pinned
    if callee in overlay:
        return overlay[callee]
    return tag(callee, call.follow or "").version


def _absent(callee: str, call: CallDecl, overlay: Mapping[str, int]) -> str:
    if call.pinned is not None:
        return f"there is no version {call.pinned} of it"
    if callee in overlay:
        return f"there is no version {overlay[callee]} of it, which this release names"
    return f"no version of it carries the tag '{call.follow}'"


def _refuse_pinned_self(name: str, call: CallDecl) -> None:
    if call.pinned is not None:
        raise BundleRefused(
            f"calls version {call.pinned} of '{name}', which is itself: a call to oneself means the calling version",
            field=_FIELDS[call.via],
            fix="drop the pin, or deploy the other version under another name",
        )
