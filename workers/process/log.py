"""What a replica itself has to say: one JSON object a line on standard error, where its author's own output goes too."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from functions.errors import InternalError


def log(event: str, **facts: Any) -> None:
    """``event`` is a short constant name; the facts are JSON values."""
    print(json.dumps({"event": event, **facts}, default=str), file=sys.stderr, flush=True)


def our_fault(where: str, error: BaseException) -> InternalError:
    """Log an exception that should not have been possible, with its trace; what callers see of it says only that it happened."""
    log("internal_error", where=where, trace="".join(traceback.format_exception(error)))
    return InternalError(f"{where} met a bug of the platform ({type(error).__name__}); the replica's log has its trace")
