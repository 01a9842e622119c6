"""The two errors of the Python backend API, and what they become on our side."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from functions.errors import (
    ModelAlreadyExists,
    ModelCancelled,
    ModelFailed,
    ModelInvalidArgument,
    ModelNotFound,
    ModelUnavailable,
    ModelUnknown,
    ModelUnsupported,
)


class TritonModelException(Exception):
    """What the API itself raises at an author."""


class Code(IntEnum):
    """Triton's error codes, with its numbers."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """The error of one response: a message for the caller, and a code that becomes the status."""

    UNKNOWN: ClassVar[Code] = Code.UNKNOWN
    INTERNAL: ClassVar[Code] = Code.INTERNAL
    NOT_FOUND: ClassVar[Code] = Code.NOT_FOUND
    INVALID_ARG: ClassVar[Code] = Code.INVALID_ARG
    UNAVAILABLE: ClassVar[Code] = Code.UNAVAILABLE
    UNSUPPORTED: ClassVar[Code] = Code.UNSUPPORTED
    ALREADY_EXISTS: ClassVar[Code] = Code.ALREADY_EXISTS
    CANCELLED: ClassVar[Code] = Code.CANCELLED

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: int = Code.INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"TritonError(message, code): message must be a str, got {type(message)}")
        self._message, self._code = message, Code(code)

    def message(self) -> str:
        return self._message

    def code(self) -> Code:
        return self._code

    def __str__(self) -> str:
        return self._message


_FAILURES: dict[Code, type[ModelFailed]] = {
    Code.UNKNOWN: ModelUnknown,
    Code.INTERNAL: ModelFailed,
    Code.NOT_FOUND: ModelNotFound,
    Code.INVALID_ARG: ModelInvalidArgument,
    Code.UNAVAILABLE: ModelUnavailable,
    Code.UNSUPPORTED: ModelUnsupported,
    Code.ALREADY_EXISTS: ModelAlreadyExists,
    Code.CANCELLED: ModelCancelled,
}


def failure(error: TritonError) -> ModelFailed:
    """The error of our tree with the same meaning and the author's own message."""
    return _FAILURES[error.code()](error.message())
