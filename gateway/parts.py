"""What the routes work with, and the admission of those that change something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from fastapi import Depends, Request

from gateway.admit import Gate
from registry.service import Registry
from workers.fleet.nodes import Nodes
from workers.fleet.rollout import Rollout


@dataclass(slots=True)
class Parts:
    """Built by the process's main file, one a process."""

    gate: Gate
    registry: Registry
    nodes: Nodes
    rollout: Rollout
    staging: Path
    """Directory for what is being uploaded; on the disk of the data directory."""
    upload_bytes: int
    """Largest upload, packed and unpacked."""
    draining: bool = False


def parts_of(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


def may_change(request: Request) -> str:
    """Who asks, for the records. Raises Unauthorized, Forbidden, InvalidRequest."""
    peer = (request.client.host, request.client.port) if request.client else None
    return parts_of(request).gate.change("http", dict(request.headers.raw), peer)


PartsOf = Annotated[Parts, Depends(parts_of)]
By = Annotated[str, Depends(may_change)]
