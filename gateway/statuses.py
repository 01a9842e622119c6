"""The one table from error codes to HTTP, and what of an error a caller may read. Core code knows no HTTP."""

from __future__ import annotations

import json
import math

from functions.errors import DespinaError, InternalError, QueueFull, RateLimited

STATUS: dict[str, int] = {
    "error": 500,
    "caller_error": 400,
    "invalid_request": 400,
    "not_found": 404,
    "conflict": 409,
    "precondition_failed": 412,
    "too_large": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "unsupported": 501,
    "cancelled": 400,
    "capacity_error": 503,
    "queue_full": 503,
    "rate_limited": 429,
    "deadline_exceeded": 504,
    "no_capacity": 503,
    "store_unreachable": 503,
    "board_unreachable": 503,
    "node_unreachable": 503,
    "draining": 503,
    "author_error": 500,
    "bundle_refused": 422,
    "start_failed": 503,
    "model_failed": 500,
    "model_unknown": 400,
    "model_not_found": 404,
    "model_invalid_argument": 400,
    "model_unavailable": 503,
    "model_unsupported": 501,
    "model_already_exists": 400,
    "model_cancelled": 400,
    "replica_died": 502,
    "author_hung": 504,
    "internal_error": 500,
    "protocol_error": 500,
}
"""The model's codes follow Triton's own mapping, so that a client of one meets the same statuses from the other."""

INTERNAL_TEXT = "internal error; the server's log has the trace"
"""All that a caller learns of an InternalError: it is ours to fix, and its message may name paths."""


def status(error: DespinaError) -> int:
    """The HTTP status of ``error``."""
    return STATUS[error.code]


def text(error: DespinaError) -> str:
    """What the caller reads."""
    return INTERNAL_TEXT if isinstance(error, InternalError) else error.message


def body(error: DespinaError) -> bytes:
    """The body of every error answer: ``{"error": "…"}``."""
    return json.dumps({"error": text(error)}, ensure_ascii=False).encode("utf-8", "replace")


def retry_after_s(error: DespinaError) -> int | None:
    """Whole seconds for ``Retry-After``, where they are known: the error says so, or a queue is full or a rate exceeded (one moment)."""
    if error.retry_after_s > 0:
        return math.ceil(error.retry_after_s)
    return 1 if isinstance(error, QueueFull | RateLimited) else None
