"""One release: one tag of several functions moved together, their dependents after them, under one id."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from functions.names import LIVE, tag_name
from gateway.parts import By, PartsOf
from gateway.routes.bodies import read_json
from gateway.routes.promotions import Move, ReleaseId, new_release, told

router = APIRouter(prefix="/v1/releases")


class Release(Move):
    """``{"moves": {name: version}, "tag": "live", "dependents": "move", "wait": 60, "release": ""}``"""

    moves: dict[str, int] = Field(min_length=1)
    tag: str = LIVE
    release: ReleaseId = ""


@router.post("")
async def release(parts: PartsOf, request: Request, by: By) -> dict[str, Any]:
    wanted = await read_json(request, Release)
    tag = tag_name(wanted.tag)
    id = wanted.release or new_release()
    promotion = await parts.rollout.move(
        wanted.moves,
        tag,
        expect=None,
        dependents=wanted.dependents,
        wait_s=wanted.wait,
        by=by,
        release=id,
        held=False,
        reason="promote",
    )
    return {"release": id, "tag": tag, "moves": wanted.moves, "promotion": told(promotion)}
