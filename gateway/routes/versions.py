"""Versions of a function: uploaded, shown, deleted."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from functions.errors import InvalidRequest
from functions.names import function_name, parse_ref, tag_name, version_number
from functions.records import File
from gateway.assembly import assemble
from gateway.parts import By, Parts, PartsOf
from gateway.routes.bodies import read_json, save
from gateway.routes.promotions import UploadQuery, new_release

router = APIRouter(prefix="/v1/functions/{name}/versions")


class FileList(BaseModel):
    """A bundle whose bytes are in the store already: ``{"files": {path: [sha256, size in bytes, executable]}}``."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, tuple[str, NonNegativeInt, bool]] = Field(min_length=1)


@router.post("")
async def upload(parts: PartsOf, request: Request, response: Response, name: str, by: By, query: UploadQuery) -> dict[str, Any]:
    """Record a bundle as a version, and promote it unless told otherwise. 201 for a new version, 200 for one that exists."""
    name, tag = function_name(name), tag_name(query.tag)
    place = parts.staging / f"upload-{secrets.token_hex(8)}"
    await asyncio.to_thread(place.mkdir)
    try:
        published = await parts.rollout.publish(
            await _receive(parts, request, place),
            name,
            tag=tag,
            promote=query.promote,
            dependents=query.dependents,
            wait_s=query.wait,
            by=by,
            release=query.release or new_release(),
            with_=_overlay(query.with_),
        )
    finally:
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    response.status_code = 201 if published.created else 200
    return published.to_json()


@router.get("/{version}")
async def show(parts: PartsOf, name: str, version: str) -> dict[str, Any]:
    """A version's whole record, and the tags that point at it now."""
    catalog = parts.registry.catalog
    record = await asyncio.to_thread(catalog.record, name, version_number(version))
    tags = sorted(tag for tag, move in catalog.tags(name).items() if record.version in move.versions)
    return {**record.to_json(), "tags": tags}


@router.delete("/{version}")
async def delete(parts: PartsOf, name: str, version: str, by: By) -> dict[str, Any]:
    number = version_number(version)
    await asyncio.to_thread(parts.registry.delete_version, name, number, by)
    return {"name": name, "version": number}


async def _receive(parts: Parts, request: Request, place: Path) -> Path:
    """The bundle in ``place``: an archive as it came, or a directory made of blobs."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        await save(request, place / "archive", parts.upload_bytes)
        return place / "archive"
    listed = await read_json(request, FileList)
    files = {path: File(*entry) for path, entry in listed.files.items()}
    await asyncio.to_thread(assemble, files, place / "bundle", parts.registry.fetch_blob, parts.upload_bytes)
    return place / "bundle"


def _overlay(text: str) -> dict[str, int]:
    refs = [parse_ref(part) for part in text.split(",") if part]
    overlay = {ref.name: ref.version for ref in refs}
    if len(overlay) != len(refs):
        raise InvalidRequest(f"with: {text[:400]!r} names a function twice")
    return overlay
