"""The one admission: every door (express lane, routes, later gRPC and jobs) asks it before anything runs or changes.

It resolves a name to one exact version, says how long the call may take and how large it may be, and checks that who asks may.
"""

from __future__ import annotations

import hmac
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from functions.errors import Forbidden, InvalidRequest, Unauthorized, Unsupported
from functions.names import Ref
from functions.records import TagRecord, VersionRecord
from gateway.settings import LOOPBACK

TIMEOUT = b"despina-timeout-us"
PRIORITY = b"despina-priority"
SEQUENCE = b"despina-sequence"
_TIMEOUT_MAX_US = 1 << 62
_CONTENT_TYPES = frozenset(
    {
        "application/json",
        "application/zip",
        "application/x-tar",
        "application/gzip",
        "application/x-gzip",
        "application/x-zip-compressed",
        "application/octet-stream",
    }
)


class Versions(Protocol):
    """What admission needs of the catalog: dictionary look-ups; only ``record`` may wait."""

    def resolve(self, name: str, selector: str | None) -> TagRecord | int: ...

    def peek(self, name: str, version: int) -> VersionRecord | None: ...

    def record(self, name: str, version: int) -> VersionRecord: ...


class NotRead(Exception):
    """A version exists whose record this process has not read yet: read it off the loop (``Gate.read``), then ask again."""

    def __init__(self, ref: Ref) -> None:
        super().__init__(f"{ref} has not been read yet")
        self.ref = ref


class Facts:
    """What every call of one version shares. Versions are immutable, so it is made once and kept."""

    __slots__ = ("body_bytes", "digest", "lines", "ref", "timeout_s")

    def __init__(self, record: VersionRecord) -> None:
        limits: Mapping[str, Any] = record.manifest["limits"]
        self.ref = record.ref
        self.digest = record.digest
        self.timeout_s = float(limits["timeout_s"])
        self.body_bytes = int(limits["body_mb"]) << 20
        self.lines = b"Despina-Version: %d\r\nDespina-Digest: %b\r\n" % (record.version, record.digest.encode())
        """The header lines that every answer of this version carries."""


class Admitted:
    """A call that may go on: to which version, and until when (the loop's clock)."""

    __slots__ = ("deadline", "facts")

    def __init__(self, facts: Facts, deadline: float) -> None:
        self.facts = facts
        self.deadline = deadline


class Gate:
    """Holds what admission needs. One in a gateway process, used from its loop only."""

    def __init__(
        self,
        versions: Versions,
        clock: Callable[[], float],
        *,
        token: str | None = None,
        hosts: frozenset[str] = LOOPBACK,
        any_host: bool = False,
        choose: Callable[[], float] = random.random,
    ) -> None:
        """``clock`` is the loop's; ``hosts`` are the names by which routes that change things may be called, ``any_host`` lifts that
        (a token then guards them); ``choose`` gives a number in [0, 1) for each call to a tag with several targets."""
        self._versions = versions
        self._clock = clock
        self._token = token.encode() if token else None
        self._hosts = hosts
        self._any_host = any_host
        self._choose = choose
        self._facts: dict[Ref, Facts] = {}

    def infer(self, headers: Mapping[bytes, bytes], function: str, selector: str | None = None) -> Admitted:
        """Let a call in, or raise why not. ``headers`` have lower-case names; ``selector`` is a version or a tag, None means ``live``.

        Raises NotFound with Triton's texts, NotRead, and InvalidRequest or Unsupported for ``Despina-*`` headers."""
        facts = self.facts(function, selector)
        limit_s = facts.timeout_s
        if TIMEOUT in headers:
            limit_s = min(limit_s, _microseconds(headers[TIMEOUT]) / 1e6)
        if PRIORITY in headers:
            raise Unsupported("Despina-Priority: queues have no priorities in this release; leave the header out")
        if SEQUENCE in headers:
            raise Unsupported(f"Despina-Sequence: {function!r} has no sequence batching")
        return Admitted(facts, self._clock() + limit_s)

    def change(self, door: str, headers: Mapping[bytes, bytes], peer: tuple[str, int] | None) -> str:
        """Who changes something, for the records: ``door:address``. Raises Unauthorized, Forbidden, InvalidRequest."""
        self._check_token(headers)
        self._check_place(headers)
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        if has_body and kind not in _CONTENT_TYPES:
            raise InvalidRequest(f"the Content-Type {kind[:200]!r} is not one of {', '.join(sorted(_CONTENT_TYPES))}")
        return f"{door}:{peer[0]}" if peer else door

    def facts(self, function: str, selector: str | None = None) -> Facts:
        """The facts of the version that ``selector`` means now. Raises NotFound, NotRead."""
        found = self._versions.resolve(function, selector)
        ref = Ref(function, found if isinstance(found, int) else self._pick(found))
        facts = self._facts.get(ref)
        if facts is None:
            record = self._versions.peek(*ref)
            if record is None:
                raise NotRead(ref)
            facts = self._facts[ref] = Facts(record)
        return facts

    def read(self, ref: Ref) -> None:
        """Read a version's record; may wait for the store, so not on the loop. Raises NotFound, StoreUnreachable."""
        self._versions.record(*ref)

    def _pick(self, tag: TagRecord) -> int:
        targets = tag.targets
        if len(targets) == 1:
            return targets[0].version
        point = self._choose() * sum(target.weight for target in targets)
        for target in targets:
            point -= target.weight
            if point < 0:
                return target.version
        return targets[-1].version

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        if self._token is None:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not given:
            raise Unauthorized("this route needs the header Authorization: Bearer <DESPINA_ADMIN_TOKEN>")
        if not hmac.compare_digest(given.strip(), self._token):
            raise Unauthorized("the bearer token is not this server's DESPINA_ADMIN_TOKEN")

    def _check_place(self, headers: Mapping[bytes, bytes]) -> None:
        """That neither a foreign host name (DNS rebinding) nor a page of another origin is behind it."""
        authority = headers.get(b"host", b"").decode("latin-1").lower()
        host = _host_name(authority)
        if not self._any_host and host not in self._hosts:
            raise Forbidden(f"the Host {host[:200]!r} is not one of this server's: {', '.join(sorted(self._hosts))}")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != authority:
            raise Forbidden(f"a page of the origin {origin.decode('latin-1')[:200]!r} may not change anything here")


def _microseconds(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19 or not 1 <= int(text) <= _TIMEOUT_MAX_US:
        raise InvalidRequest(f"Despina-Timeout-Us: {text[:40].decode('latin-1')!r} is not a whole number from 1 to {_TIMEOUT_MAX_US}")
    return int(text)


def _host_name(authority: str) -> str:
    """``example.org:8000`` → ``example.org``; ``[::1]:8000`` → ``::1``."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
