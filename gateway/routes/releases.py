"""One release: one tag of several functions moved together, their dependents after them, under one id."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from functions.names import LIVE, tag_name
from gateway.parts import By, PartsOf
from gateway.routes.bodies import read_json
from gateway.routes.promotions import new_release, told
from workers.fleet.promotion import Dependents

router = APIRouter(prefix="/v1/releases")


class Release(BaseModel):
    """``{"moves": {name: version}, "tag": "live", "dependents": "move", "wait": 60, "release": ""}``"""

    model_config = ConfigDict(extra="forbid")

    moves: dict[str, int] = Field(min_length=1)
    tag: str = LIVE
    dependents: Dependents = Dependents.MOVE
    wait: float = Field(default=60.0, ge=0, le=3600)
    release: str = Field(default="", max_length=64, pattern=r"^[A-Za-z0-9_-]*$")


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
