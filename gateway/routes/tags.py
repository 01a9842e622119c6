"""Tags: where one points, pointing it elsewhere by compare-and-swap, and back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from functions.errors import InvalidRequest, NotFound
from functions.names import LIVE, tag_name
from gateway.parts import By, Parts, PartsOf
from gateway.routes.bodies import read_json
from gateway.routes.promotions import MoveQuery, new_release, told
from registry.describe import move
from workers.fleet.promotion import Promotion

router = APIRouter(prefix="/v1/functions/{name}")


class Pointed(BaseModel):
    """``{"version": 3}``"""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, lt=2**63)


class Back(BaseModel):
    """``{"to": 2}``, ``{"to": "tag"}`` or ``{}``: what ``tag`` (default ``live``) was before."""

    model_config = ConfigDict(extra="forbid")

    to: int | str | None = None
    tag: str = LIVE


@router.get("/tags/{tag}")
async def show(parts: PartsOf, response: Response, name: str, tag: str) -> dict[str, Any]:
    record = parts.registry.catalog.tag(name, tag)
    response.headers["ETag"] = record.etag
    return {"name": name, **move(record)}


@router.put("/tags/{tag}")
async def put(parts: PartsOf, request: Request, response: Response, name: str, tag: str, by: By, query: MoveQuery) -> dict[str, Any]:
    """Point a tag at a version, once that has answered its warm-up. ``If-Match`` with its ETag, or ``If-None-Match: *`` for a tag
    that is new, makes it a compare-and-swap."""
    tag = tag_name(tag)
    wanted = await read_json(request, Pointed)
    promotion = await parts.rollout.move(
        {name: wanted.version},
        tag,
        expect=_expected(parts, request, name, tag),
        dependents=query.dependents,
        wait_s=query.wait,
        by=by,
        release=new_release(),
        held=False,
        reason="set",
    )
    return _moved(parts, response, name, tag, promotion)


@router.post("/rollback")
async def rollback(parts: PartsOf, request: Request, response: Response, name: str, by: By, query: MoveQuery) -> dict[str, Any]:
    """Point a tag back, and hold it there: re-locks pass it by until it is moved by hand."""
    back = await read_json(request, Back)
    tag = tag_name(back.tag)
    promotion = await parts.rollout.rollback(
        name, back.to, tag=tag, dependents=query.dependents, wait_s=query.wait, by=by, release=new_release()
    )
    return _moved(parts, response, name, tag, promotion)


def _moved(parts: Parts, response: Response, name: str, tag: str, promotion: Promotion) -> dict[str, Any]:
    """Where the tag points now. Raises why it has not moved, before it is looked for: there may be none yet."""
    outcome = told(promotion)
    record = parts.registry.catalog.tag(name, tag)
    response.headers["ETag"] = record.etag
    return {"name": name, **move(record), "promotion": outcome}


def _expected(parts: Parts, request: Request, name: str, tag: str) -> int | None:
    """The epoch that the tag must be at: 0 for none yet, None for any."""
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if none_match is not None:
        if none_match.strip() != "*" or match is not None:
            raise InvalidRequest("If-None-Match: only *, and not beside If-Match")
        return 0
    if match is None:
        return None
    if match.strip() == "*":
        try:
            return parts.registry.catalog.tag(name, tag).epoch
        except NotFound:
            return -1  # No epoch is this one: the precondition fails, as it must for what does not exist.
    text = match.strip().removeprefix('"').removesuffix('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise InvalidRequest(f"If-Match: {match[:40]!r} is not an ETag of a tag")
    return int(text)
