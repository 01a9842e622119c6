"""Whether this server lives, whether it takes calls, and what it is."""

from __future__ import annotations

from fastapi import APIRouter, Response

from gateway.parts import PartsOf

router = APIRouter()

TRITON_VERSION = "2.51.0"
"""The release whose behaviour the v2 interface follows; Triton's clients compare and print it."""
EXTENSIONS = ["classification", "model_configuration", "binary_tensor_data", "parameters", "statistics"]


@router.get("/v2/health/live")
async def live() -> Response:
    return Response(status_code=200, media_type="text/plain")


@router.get("/v2/health/ready")
async def ready(parts: PartsOf) -> Response:
    """200 while calls are taken: a node answers, and this server is not shutting down."""
    takes_calls = parts.nodes.connected > 0 and not parts.draining
    return Response(status_code=200 if takes_calls else 400, media_type="text/plain")


@router.get("/v2")
async def server() -> dict[str, object]:
    return {"name": "despina", "version": TRITON_VERSION, "extensions": EXTENSIONS}
