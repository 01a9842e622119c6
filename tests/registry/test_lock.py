"""How declared calls become exact versions."""

from __future__ import annotations

import pytest

from functions.calls import CallDecl
from functions.errors import BundleRefused, NotFound
from functions.records import Locked, TagRecord, Target, VersionRecord
from registry.lock import resolve

TAGS = {("f", "live"): 3, ("f", "canary"): 4, ("g", "live"): 1}


def tag(name: str, tag: str) -> TagRecord:
    if (name, tag) not in TAGS:
        raise NotFound(f"no tag '{tag}'")
    return TagRecord(name, tag, 1, (Target(TAGS[name, tag]),), "", "", "")


def record(name: str, version: int) -> VersionRecord:
    if version > 5:
        raise NotFound(f"no version {version}")
    return VersionRecord(name, version, f"digest of {name}@{version}", "", {}, {}, {}, "1")


CASES = {
    "a callee that follows its live tag": (CallDecl(), {}, Locked(3, "digest of f@3", "live")),
    "another tag": (CallDecl("canary", via="manifest"), {}, Locked(4, "digest of f@4", "canary", via="manifest")),
    "a pin": (CallDecl(None, 2), {}, Locked(2, "digest of f@2", None)),
    "what the release is about to move": (CallDecl(), {"f": 5}, Locked(5, "digest of f@5", "live")),
    "a pin is stronger than the release": (CallDecl(None, 2), {"f": 5}, Locked(2, "digest of f@2", None)),
    "a shared callee": (CallDecl(shared=True), {}, Locked(3, "digest of f@3", "live", True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_locked_to(case: str) -> None:
    call, overlay, expected = CASES[case]

    assert {"f": expected} == resolve("me", {"f": call}, tag, record, overlay)


def test_a_call_to_oneself_is_not_locked() -> None:
    assert {} == resolve("f", {"f": CallDecl()}, tag, record, {})


REFUSED = {
    "unknown callee": ({"zzz": CallDecl()}, {}, "calls 'zzz', but no version of it carries the tag 'live'"),
    "tag that is not there": ({"g": CallDecl("canary", via="manifest")}, {}, r"function.toml: \[calls\]: calls 'g', .* the tag 'canary'"),
    "pin that is not there": ({"f": CallDecl(None, 9, via="source")}, {}, "model.py: calls 'f', but there is no version 9 of it"),
    "release that is not there": ({"f": CallDecl()}, {"f": 8}, "no version 8 of it, which this release names"),
    "pinned call to oneself": ({"me": CallDecl(None, 2)}, {}, "calls version 2 of 'me', which is itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_there_is_nothing_to_lock_for_an(case: str) -> None:
    calls, overlay, message = REFUSED[case]

    with pytest.raises(BundleRefused, match=message):
        resolve("me", calls, tag, record, overlay)
