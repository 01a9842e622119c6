"""Request bodies of the routes: JSON with a limit, checked by a model; and streams to a file, never held in memory."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import BinaryIO, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from functions.errors import InvalidRequest, TooLarge
from gateway.answers import fault_text

JSON_BYTES = 8 << 20
"""Largest JSON body of a route: a manifest of 10,000 files with long paths fits."""
_WRITE_BYTES = 1 << 20
"""So much is gathered before a thread writes it."""

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, model: type[Model], limit: int = JSON_BYTES) -> Model:
    """The body as ``model``; an empty body is ``{}``. Raises InvalidRequest naming the field, TooLarge."""
    _check_length(request, limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(f"a JSON body of more than {limit} bytes")
    try:
        return model.model_validate_json(bytes(body) or b"{}")
    except ValidationError as error:
        raise InvalidRequest("; ".join(fault_text(fault) for fault in error.errors()[:10])) from None


async def save(request: Request, path: Path, limit: int) -> str:
    """Stream the body to the new file ``path``; the sha256 of what came. Raises TooLarge; the file is then the caller's to remove."""
    _check_length(request, limit)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        waiting = bytearray()
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"a body of more than {limit} bytes")
            waiting += chunk
            if len(waiting) >= _WRITE_BYTES:
                piece, waiting = waiting, bytearray()
                await asyncio.to_thread(_write, file, digest, piece)
        await asyncio.to_thread(_write, file, digest, waiting)
    return digest.hexdigest()


def _write(file: BinaryIO, digest: hashlib._Hash, piece: bytearray) -> None:
    file.write(piece)
    digest.update(piece)


def _check_length(request: Request, limit: int) -> None:
    """Refuse by Content-Length before anything is read."""
    text = request.headers.get("content-length", "")
    if text.isdigit() and int(text) > limit:
        raise TooLarge(f"a body of {text} bytes; the limit is {limit}")
