"""Functions as they stand: all of them, one of them, where its tags have pointed, what runs it and what that wrote."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from functions.names import Ref
from gateway.parts import By, PartsOf
from registry.describe import move
from workers.node.messages import ReplicaEvent

router = APIRouter(prefix="/v1/functions")


@router.get("")
async def all_functions(parts: PartsOf) -> dict[str, Any]:
    catalog = parts.registry.catalog
    return {
        "functions": [
            {
                "name": name,
                "versions": len(catalog.versions(name)),
                "tags": {tag: record.version for tag, record in sorted(catalog.tags(name).items())},
                "held": any(record.held for record in catalog.tags(name).values()),
                "replicas": len(parts.nodes.replicas(name)),
            }
            for name in catalog.functions()
        ]
    }


@router.get("/{name}")
async def function(parts: PartsOf, name: str) -> dict[str, Any]:
    """Its page; ``failures`` says of each version that cannot start why."""
    description = await asyncio.to_thread(parts.registry.describe, name)
    versions = [version["version"] for version in description["versions"]]
    failures = [(version, parts.nodes.failure(Ref(name, version))) for version in versions]
    found = [{"version": version, "code": error.code, "reason": error.message} for version, error in failures if error is not None]
    return {**description, "failures": found}


@router.get("/{name}/history")
async def history(parts: PartsOf, name: str, tag: str | None = None) -> dict[str, Any]:
    """All moves of its tags, the newest first."""
    moves = await asyncio.to_thread(parts.registry.catalog.history, name, tag)
    return {"history": [move(record) for record in moves]}


@router.get("/{name}/replicas")
async def replicas(parts: PartsOf, name: str) -> dict[str, Any]:
    parts.registry.catalog.kept(name)
    return {"replicas": [_replica(event) for event in parts.nodes.replicas(name)]}


@router.get("/{name}/logs")
async def logs(
    parts: PartsOf, name: str, _by: By, version: str | None = None, lines: Annotated[int, Query(ge=1, le=10_000)] = 100
) -> dict[str, Any]:
    """The last lines that replicas of one version (a number or a tag; default ``live``) wrote. Admitted like a change: an author's
    code may write what is not everybody's to read."""
    ref = parts.registry.catalog.reached(name, version)
    return {"name": name, "version": ref.version, "lines": await parts.nodes.logs(ref, lines)}


def _replica(event: ReplicaEvent) -> dict[str, Any]:
    """A replica as anybody may see it: without the token and the address that let one speak to it."""
    hidden = ("event", "token", "address", "running")
    return {key: value for key, value in event.to_json().items() if key not in hidden}
