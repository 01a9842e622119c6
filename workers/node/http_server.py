"""An HTTP server that is one part of a process among others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process's signals belong to its main file, which sets ``should_exit``."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
