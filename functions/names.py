"""The names of things: functions, tags, versions, and how a reference to them is spelled."""

from __future__ import annotations

import re
from typing import NamedTuple

from functions.errors import InvalidRequest

FUNCTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
LIVE = "live"
"""The tag that an unqualified call reaches."""


class Ref(NamedTuple):
    """One exact version of one function: ``digits@3``."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def function_name(text: str) -> str:
    """``text`` if it is a valid function name. Raises InvalidRequest."""
    if not FUNCTION.fullmatch(text) or ".." in text:
        raise InvalidRequest(
            f"{text[:140]!r} is not a function name: 1 to 128 of letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit, without '..'"
        )
    return text


def tag_name(text: str) -> str:
    """``text`` if it is a valid tag. Raises InvalidRequest."""
    if not TAG.fullmatch(text) or ".." in text:
        raise InvalidRequest(f"{text[:80]!r} is not a tag: 1 to 64 of letters, digits, '.', '_' and '-', beginning with a letter")
    return text


def version_number(text: str) -> int:
    """A version as written in a path. Raises InvalidRequest; versions begin at 1 and fit 63 bits (Triton keeps them in an int64)."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not 1 <= int(text) < 2**63 or text[0] == "0":
        raise InvalidRequest(f"{text[:40]!r} is not a version: a whole number from 1")
    return int(text)


def parse_ref(text: str) -> Ref:
    """``NAME@V`` as text. Raises InvalidRequest."""
    name, at, version = text.partition("@")
    if not at:
        raise InvalidRequest(f"{text[:180]!r} is not NAME@VERSION")
    return Ref(function_name(name), version_number(version))
