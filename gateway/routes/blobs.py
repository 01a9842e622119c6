"""The bytes of bundles by their sha256: which are missing, and here they are."""

from __future__ import annotations

import asyncio
import secrets

from fastapi import APIRouter, Request
from pydantic import NonNegativeInt, RootModel

from gateway.parts import By, PartsOf
from gateway.routes.bodies import read_json, save

router = APIRouter(prefix="/v1/blobs")


class Wanted(RootModel[dict[str, NonNegativeInt]]):
    """``{sha256: size in bytes}``"""


@router.post("/missing")
async def missing(parts: PartsOf, request: Request, _by: By) -> dict[str, list[str]]:
    """Of the blobs that are wanted, those the store lacks. The others stay for at least a day."""
    wanted = await read_json(request, Wanted)
    return {"missing": await asyncio.to_thread(parts.registry.missing, wanted.root)}


@router.put("/{sha256}", status_code=201)
async def put(parts: PartsOf, request: Request, sha256: str, _by: By) -> dict[str, str]:
    path = parts.staging / f"blob-{secrets.token_hex(8)}"
    try:
        await save(request, path, parts.upload_bytes)
        await asyncio.to_thread(parts.registry.put_blob, sha256, path)
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)
    return {"sha256": sha256}
