"""The trace of a request, as an author may read it and hand it on to a call."""

from __future__ import annotations


class InferenceTrace:
    """``get_context()`` is the JSON text of the trace context, or None when the request is not traced."""

    __slots__ = ("_context",)

    def __init__(self, context: str | None = None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context
