"""The outside of a process that serves: its settings, its log lines, its loop, its exit code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop
from pydantic import BaseModel, ValidationError

from functions.errors import DespinaError, InvalidRequest

S = TypeVar("S", bound=BaseModel)


def run_process(name: str, settings: type[S], serve: Callable[[S], Coroutine[Any, Any, None]]) -> None:
    """Read ``settings`` (JSON) from the first argument, or from standard input where that is ``-``, and run ``serve`` on a loop until it
    returns. Settings with tokens come by standard input: arguments are everybody's to see. Logs go to standard error.

    Exits with 2 when a setting cannot be used (a value, a port in use, a directory that cannot be written), with 1 when ``serve``
    raises another of our errors; its reason is the last line written."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        text = sys.stdin.read() if sys.argv[1] == "-" else sys.argv[1]
        uvloop.run(serve(settings.model_validate_json(text)))
    except (ValidationError, InvalidRequest, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(2)
    except DespinaError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(1)
