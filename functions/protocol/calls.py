"""One call between its decoding and its encoding: what was asked, and in which form the caller wants the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from functions.protocol.values import Request


class Wanted(NamedTuple):
    """The form of one output. ``classes`` > 0 asks for the that many highest values as ``value:index[:label]`` strings."""

    binary: bool = False
    classes: int = 0


@dataclass(slots=True)
class DecodedCall:
    """``wanted`` holds the outputs the caller listed; ``default`` is the form of every other one."""

    request: Request
    wanted: Mapping[str, Wanted]
    default: Wanted
    accept: int = 0
    """The ACCEPT_* bits of ``frames.Flag``: how the reply may be compressed."""


class Encoded(NamedTuple):
    """A reply as it travels. The parts are the body when joined; they are owned bytes: no view of a model's array, so the model may
    write over its outputs while the reply still waits to be sent."""

    parts: list[bytes]
    header_length: int
    """KServe's Inference-Header-Content-Length, before compression; ``frames.NO_HEADER`` when the whole body is JSON."""
    flags: int
    """``frames.Flag``: BINARY, and GZIP or DEFLATE when compressed."""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))
