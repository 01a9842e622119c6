"""A function's scale across its deploys: what overrides the versions' own ``[scale]``."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from functions.errors import InvalidRequest
from functions.manifest import Scale
from gateway.parts import By, PartsOf
from gateway.routes.bodies import read_json

router = APIRouter(prefix="/v1/functions/{name}/scale")


@router.get("")
async def get(parts: PartsOf, name: str) -> dict[str, Any]:
    return dict(parts.registry.scale(name))


@router.put("")
async def put(parts: PartsOf, request: Request, name: str, _by: By) -> dict[str, Any]:
    """Only what is written overrides; the rest stays the version's own."""
    scale = await read_json(request, Scale)
    if scale.snapshot:
        raise InvalidRequest("snapshot: not available yet")
    override = scale.model_dump(exclude_unset=True)
    await asyncio.to_thread(parts.registry.put_scale, name, override)
    return override


@router.delete("")
async def delete(parts: PartsOf, name: str, _by: By) -> dict[str, Any]:
    await asyncio.to_thread(parts.registry.clear_scale, name)
    return {}
