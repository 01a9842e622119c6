"""``function.toml``: what a bundle says that Triton's configuration has no word for.

The file is optional, and so is everything in it; a version record keeps it with all defaults filled in. What this release
cannot honour yet is refused by name rather than ignored.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from functions.errors import BundleRefused
from functions.names import FUNCTION, TAG

MAX_CHARACTERS = 1 << 18
"""Longest file read."""

KILL_AFTER_S = 30.0
"""``kill_s`` is so much more than ``timeout_s`` where it is not written."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Scale(_Section):
    """The version's default scale; ``PUT scale`` of the function overrides it."""

    min: int = Field(default=0, ge=0, le=1000)
    """Replicas kept even without calls."""
    max: int | None = Field(default=None, ge=1, le=1000)
    """Replicas at most; None = as many as the machines' cores allow."""
    target: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """Calls in flight that one replica should have; None = lanes × the batch size."""
    idle_s: float = Field(default=60.0, ge=0, le=86_400, allow_inf_nan=False)
    """Seconds without a call before the last replica goes."""
    snapshot: bool = False
    """Fork new replicas from one that has loaded."""

    @model_validator(mode="after")
    def _ordered(self) -> Scale:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max is {self.max}, less than min, which is {self.min}")
        return self


class Call(_Section):
    """How a callee is resolved: by a tag (``live`` where nothing is written), or pinned to one version."""

    version: int | None = Field(default=None, ge=1, lt=2**63)
    tag: str | None = None
    shared: bool = False
    """Served by replicas of its own instead of inside the caller's process."""

    @field_validator("tag")
    @classmethod
    def _named(cls, tag: str | None) -> str | None:
        if tag is not None and (not TAG.fullmatch(tag) or ".." in tag):
            raise ValueError(f"{tag[:80]!r} is not a tag")
        return tag

    @model_validator(mode="after")
    def _one_of_both(self) -> Call:
        if self.version is not None and self.tag is not None:
            raise ValueError("write version or tag, not both")
        return self


class Limits(_Section):
    timeout_s: Seconds = 300.0
    """Seconds until the caller is answered that time is up."""
    kill_s: Seconds | None = None
    """Seconds one batch may run before the process is killed; timeout_s + 30 where it is not written."""
    queue: int = Field(default=1000, ge=1, le=1_000_000)
    """Calls that may wait."""
    body_mb: int = Field(default=1024, ge=1, le=1024)
    """Largest request body, in MiB."""
    rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """Most calls a second that one gateway lets in; None = no limit. As many as come in one second may come at once."""


class Retry(_Section):
    idempotent: bool = False
    """A call that a dying process had begun may be run again."""


class Env(_Section):
    requirements: list[str] = []
    """Python packages that the bundle needs beside the platform's own."""


class Permissions(_Section):
    repository: bool = False
    """Its code may publish functions and move tags."""


class Manifest(_Section):
    """A checked function.toml."""

    scale: Scale = Scale()
    calls: dict[str, Call] = {}
    limits: Limits = Limits()
    retry: Retry = Retry()
    env: Env = Env()
    permissions: Permissions = Permissions()

    @field_validator("calls")
    @classmethod
    def _functions(cls, calls: dict[str, Call]) -> dict[str, Call]:
        for name in calls:
            if not FUNCTION.fullmatch(name) or ".." in name:
                raise ValueError(f"{name[:140]!r} is not a function name")
        return calls

    def to_json(self) -> dict[str, Any]:
        """As a version record keeps it: every key, ``kill_s`` filled in."""
        data = self.model_dump(mode="json")
        if self.limits.kill_s is None:
            data["limits"]["kill_s"] = self.limits.timeout_s + KILL_AFTER_S
        return data


def parse(text: str, source: str = "function.toml") -> Manifest:
    """The manifest in a file's text; "" gives the defaults. Raises BundleRefused, whose ``field`` is ``<source>:<line>: <key>``."""
    if len(text) > MAX_CHARACTERS:
        raise BundleRefused(f"{len(text)} characters; the limit is {MAX_CHARACTERS}", field=source)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BundleRefused(f"not TOML: {error}", field=source) from error
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        raise _refusal(error, text, source) from error
    _refuse_unavailable(manifest, text, source)
    return manifest


def _refuse_unavailable(manifest: Manifest, text: str, source: str) -> None:
    unavailable: dict[tuple[str, ...], bool] = {
        ("scale", "snapshot"): manifest.scale.snapshot,
        ("env", "requirements"): bool(manifest.env.requirements),
        ("permissions", "repository"): manifest.permissions.repository,
    }
    for path, used in unavailable.items():
        if used:
            raise BundleRefused("not available yet", field=_field(path, text, source), fix="remove it")


def _refusal(error: ValidationError, text: str, source: str) -> BundleRefused:
    """The first thing that is wrong, in our words."""
    first = error.errors(include_url=False)[0]
    path = tuple(str(part) for part in first["loc"])
    field = _field(path, text, source)
    if first["type"] == "extra_forbidden":
        known = _keys(path[:-1])
        close = difflib.get_close_matches(path[-1], known, n=1)
        fix = f"did you mean {close[0]!r}?" if close else f"the keys here are: {', '.join(known)}"
        return BundleRefused(f"unknown key {path[-1]!r}", field=field, fix=fix)
    if first["type"] == "value_error":
        return BundleRefused(str(first["ctx"]["error"]), field=field)
    return BundleRefused(f"{repr(first['input'])[:100]} is refused", field=field, fix=first["msg"][:1].lower() + first["msg"][1:])


def _keys(section: tuple[str, ...]) -> list[str]:
    model: type[BaseModel] = Manifest
    for part in section:
        if part in model.model_fields and part != "calls":
            default = model.model_fields[part].default
            model = type(default)
        else:
            model = Call
    return list(model.model_fields)


def _field(path: tuple[str, ...], text: str, source: str) -> str:
    line = _line(path, text)
    return f"{source}:{line}: {'.'.join(path)}" if line else f"{source}: {'.'.join(path)}"


def _line(path: tuple[str, ...], text: str) -> int:
    """The line where the key's last written part stands; 0 when it is not found (a parser keeps no places, so this looks for
    the table's header and the key after it, as they are usually written)."""
    table: tuple[str, ...] = ()
    found = 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]", line)
        if header:
            table = _parts(header[1])
            written = table
        else:
            key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
            written = (*table, *_parts(key[1])) if key else ()
        if written and path[: len(written)] == written:
            found = number
    return found


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))
