"""What every move of a tag is asked with, and how its outcome is told."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from functions.errors import Conflict
from functions.names import LIVE
from workers.fleet.promotion import WAIT_S, Dependents, Outcome, Promotion

ReleaseId = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_-]*$", description="One id for several requests; empty: a new one.")]


class Move(BaseModel):
    """Query of a move."""

    model_config = ConfigDict(extra="forbid")

    dependents: Dependents = Dependents.MOVE
    wait: float = Field(default=WAIT_S, ge=0, le=3600, description="Seconds that the target has to answer its warm-up.")


class Upload(Move):
    """Query of an upload."""

    tag: str = LIVE
    promote: bool = True
    release: ReleaseId = ""
    with_: str = Field(default="", alias="with", description="name@V,…: versions of callees that the same release is about to move.")


MoveQuery = Annotated[Move, Query()]
UploadQuery = Annotated[Upload, Query()]


def new_release() -> str:
    """An id for the moves of one request: sorts by time, unique enough to grep for."""
    return f"{time.time_ns() // 1_000_000:011x}-{secrets.token_hex(4)}"


def told(promotion: Promotion) -> dict[str, Any]:
    """How a move ended, for its answer. Raises why nothing moved, where nothing did: an answer of 200 must mean that it has."""
    if promotion.state is Outcome.FAILED:
        raise promotion.error or Conflict(promotion.reason)
    return promotion.to_json()
