"""The promise every backend keeps; Request and Response, the values that cross it, are the codec's too. Standard library and numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from functions.protocol.values import Request as Request
from functions.protocol.values import Response as Response


@dataclass(frozen=True, slots=True)
class Member:
    """What an instance is told about the version it runs."""

    name: str
    version: int
    model_dir: str
    version_dir: str
    config: Mapping[str, Any]
    instance: str
    """Triton's instance name: ``<group name>_<n>``."""
    kind: str = "CPU"
    device_id: int = 0
    call: Callable[[Request, str, int], Sequence[Response]] = field(default=lambda *_: ())
    """``call(request, callee, version)``: run a BLS call by this member's lock (version -1: the locked one); blocks.
    Errors come back in the Response, never as exceptions."""
    ready: Callable[[str, str], bool] = field(default=lambda *_: False)
    """``ready(callee, version)``: whether such a call would find its model (version "": the locked one)."""


class Backend(Protocol):
    """One instance: runs one batch at a time. Made in the process that runs it; the constructor loads, and may be slow.

    The constructor raises StartFailed with what the author must know. ``execute`` answers one Response a request, in order;
    when it raises a ModelFailed, every request of the batch gets it. ``close`` is called once, at the end, and does not raise.
    """

    spent_ns: tuple[int, int]
    """Of the last ``execute``: nanoseconds spent on making the model's inputs, and on taking its outputs apart."""

    def __init__(self, member: Member) -> None: ...

    def execute(self, requests: Sequence[Request]) -> list[Response]: ...

    def close(self) -> None: ...


class Inspect(Protocol):
    """What a backend tells about an artifact at publish time; a module-level function ``inspect(config, version_dir)`` of each
    backend's file returns the completed config dict or raises BundleRefused. It runs only in the inspection process."""

    def __call__(self, config: dict[str, Any], version_dir: str) -> dict[str, Any]: ...
