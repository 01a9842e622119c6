"""What became of a move of a tag, as sentences. Pure: what routes answer goes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.names import LIVE


def moved(name: str, tag: str, before: int | None, after: int | None) -> str:
    """``f live: 1 → 2``; None is a tag that is not there."""
    if after is None:
        return f"{name} has no tag '{tag}' yet"
    if before is None:
        return f"{name} {tag}: new → {after}"
    return f"{name} {tag} stays at {after}" if before == after else f"{name} {tag}: {before} → {after}"


def dependent(outcome: Mapping[str, Any], tag: str) -> str:
    """What became of one function that follows what was moved at ``tag``."""
    name, version, reason = outcome["name"], outcome["version"], outcome["reason"]
    if outcome["state"] == "moved":
        return f"{name} follows, now as version {version}"
    if reason == "held":
        # Its own tag is live or the one it follows; only where both are one is it known here.
        which = LIVE if tag == LIVE else "TAG"
        return f"{name} stays at {version}: a rollback holds it there; despina tag {name} {which} {version} releases it"
    known = {"split": "its tag points at several versions", "kept": "dependents were to be kept", "": "it cannot follow"}
    return f"{name} stays at {version}: {known.get(reason, reason)}"


def refused(result: Mapping[str, Any]) -> str:
    """Of a deploy whose release was refused: what is recorded, where the tags are, and the reason."""
    refs = [f"{version['name']}@{version['version']}" for version in result["versions"]]
    tags = [moved(name, result["tag"], at["before"], at["after"]) for name, at in result["tags"].items()]
    recorded = f"{', '.join(refs)} {'is' if len(refs) == 1 else 'are'} recorded but not promoted"
    return f"{recorded}; {', '.join(tags)}: {result['promotion']['reason']}"
