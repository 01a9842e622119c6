"""The whole key space of a store. No other file joins strings into a key, or takes one apart.

    blobs/sha256/<ab>/<64 hex>                      the bytes of one file; <ab> is the first two of the 64 digits
    functions/<name>/versions/<number>.json         VersionRecord: created once, last, never changed
    functions/<name>/deleted/<number>.json          the version is gone: created once; its record stays, so its number is never reused
    functions/<name>/deleting/<number>-<token>.json a deletion is being decided: the only key that comes and goes
    functions/<name>/tags/<tag>/<epoch>.json        TagRecord: created once; the highest epoch is where the tag points now
    functions/<name>/scale/<epoch>.json             what overrides ``[scale]`` since then; the highest epoch holds, {} is none

Numbers are written with 19 digits (versions fit 63 bits), so that a listing is in the order of numbers. Numbers and epochs begin
at 1 and have no gaps: each is created only after the one before it was seen. Everything but ``deleting`` is only ever added, so
any number of readers can merge what they saw in any order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from functions.errors import InvalidRequest

BLOBS = "blobs/sha256/"
FUNCTIONS = "functions/"
SHA256 = re.compile(r"[0-9a-f]{64}")

_KEY = re.compile(r"functions/([^/]+)/(?:(versions|deleted|deleting|scale)|(tags)/([^/]+))/(\d{19})(?:-[0-9a-f]+)?\.json")


class Parsed(NamedTuple):
    """A key under ``functions/``, taken apart."""

    name: str
    kind: str
    """``versions``, ``deleted``, ``deleting``, ``tags`` or ``scale``."""
    tag: str
    """Of a tag's epoch; "" otherwise."""
    number: int
    """The version, or the epoch."""


def blob(sha256: str) -> str:
    """Raises InvalidRequest unless given 64 lower-case hex digits."""
    if not SHA256.fullmatch(sha256):
        raise InvalidRequest(f"{sha256[:80]!r} is not a sha256: 64 lower-case hexadecimal digits")
    return f"{BLOBS}{sha256[:2]}/{sha256}"


def blob_sha256(key: str) -> str:
    """The digest in a blob's key."""
    return key.rpartition("/")[2]


def function(name: str) -> str:
    """The prefix of everything about one function."""
    return f"{FUNCTIONS}{name}/"


def version(name: str, number: int) -> str:
    return f"{function(name)}versions/{number:019}.json"


def deleted(name: str, number: int) -> str:
    return f"{function(name)}deleted/{number:019}.json"


def deleting(name: str, number: int, token: str = "") -> str:
    """The key by which one deleter, ``token`` in hex, says that it is about to decide; without a token, the prefix of all of them."""
    prefix = f"{function(name)}deleting/{number:019}-"
    return f"{prefix}{token}.json" if token else prefix


def tag(name: str, tag: str, epoch: int) -> str:
    return f"{function(name)}tags/{tag}/{epoch:019}.json"


def scale(name: str, epoch: int) -> str:
    return f"{function(name)}scale/{epoch:019}.json"


def parse(key: str) -> Parsed | None:
    """Take a key under ``functions/`` apart; None for one that no function above made."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    name, kind, tags, tag, number = match.groups()
    return Parsed(name, kind or tags, tag or "", int(number))
