"""How the routes answer errors: one shape, whoever found the fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fastapi import Response

from functions.errors import DespinaError
from gateway import statuses


def error_response(error: DespinaError, status: int = 0, headers: Mapping[str, str] | None = None) -> Response:
    """``{"error": …}`` with ``Despina-Error``, and ``Retry-After`` where known; ``status`` overrides the table."""
    sent = {"Despina-Error": error.code, **(headers or {})}
    seconds = statuses.retry_after_s(error)
    if seconds is not None:
        sent["Retry-After"] = str(seconds)
    return Response(statuses.body(error), status or statuses.status(error), sent, media_type="application/json")


def fault_text(fault: Mapping[str, object]) -> str:
    """One fault that pydantic found, as a sentence: ``query.wait: Input should be …``."""
    place = ".".join(str(part) for part in cast("tuple[object, ...]", fault["loc"]))
    reason = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason
