"""The bytes of answers on the express lane, and what its request headers say about bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from functions.errors import DespinaError, InvalidRequest, Unsupported
from functions.protocol.frames import NO_HEADER, Flag
from gateway import statuses
from gateway.admit import Facts

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%b%bContent-Length: %d\r\n\r\n"
_BINARY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n%b%bInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
)
_UNKNOWN_CODING = "Unsupported compression type"
"""Triton's words."""
_CODINGS = {b"gzip": Flag.GZIP, b"deflate": Flag.DEFLATE}
_ACCEPTS = {"gzip": int(Flag.ACCEPT_GZIP), "deflate": int(Flag.ACCEPT_DEFLATE), "identity": 0}
_GZIP, _DEFLATE, _BINARY_FLAG = int(Flag.GZIP), int(Flag.DEFLATE), int(Flag.BINARY)
_CLOSE = b"Connection: close\r\n"
_KEEP = b"Connection: keep-alive\r\n"


def connection_line(keep_alive: bool, old: bool) -> bytes:
    """``old`` is HTTP/1.0, which closes unless told otherwise; 1.1 stays unless told otherwise."""
    if not keep_alive:
        return _CLOSE
    return _KEEP if old else b""


def success(facts: Facts, header_length: int, length: int, flags: int, connection: bytes) -> bytes:
    """The head of a 200, for a body of ``length`` bytes that is already what HTTP carries."""
    if flags & (_GZIP | _DEFLATE):
        connection += b"Content-Encoding: gzip\r\n" if flags & _GZIP else b"Content-Encoding: deflate\r\n"
    if flags & _BINARY_FLAG and header_length != NO_HEADER:
        return _BINARY % (facts.lines, connection, header_length, length)
    return _JSON % (facts.lines, connection, length)


def failure(error: DespinaError, facts: Facts | None, length: int, connection: bytes, status: int = 0) -> bytes:
    """The head of an error answer; ``status`` overrides the table where HTTP has a word of its own (405, 408, 431)."""
    code = status or statuses.status(error)
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: application/json\r\nDespina-Error: {error.code}\r\n".encode(),
        facts.lines if facts is not None else b"",
        connection,
    ]
    seconds = statuses.retry_after_s(error)
    if seconds is not None:
        lines.append(b"Retry-After: %d\r\n" % seconds)
    if code == 405:
        lines.append(b"Allow: POST\r\n")
    if error.message == _UNKNOWN_CODING:
        lines.append(b"Accept-Encoding: gzip, deflate\r\n")
    lines.append(b"Content-Length: %d\r\n\r\n" % length)
    return b"".join(lines)


_SINGULAR = frozenset(
    {b"inference-header-content-length", b"content-encoding", b"host", b"despina-timeout-us", b"despina-priority", b"despina-sequence"}
)


def refuse_repeated(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises InvalidRequest when a header that has one meaning is given twice: two readers could take two different ones."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGULAR:
            raise InvalidRequest(f"the header {name.decode('latin-1')} is given twice")
        seen.add(name)


def header_length(names: Mapping[bytes, bytes]) -> int:
    """``Inference-Header-Content-Length``; NO_HEADER where absent. Raises InvalidRequest."""
    text = names.get(b"inference-header-content-length")
    if text is None:
        return NO_HEADER
    if not text.isdigit() or len(text) > 10 or int(text) >= NO_HEADER:
        raise InvalidRequest(f"Inference-Header-Content-Length: {text[:40].decode('latin-1')!r} is not a number of bytes")
    return int(text)


def coding_flags(names: Mapping[bytes, bytes]) -> int:
    """Frame flags for how the body is encoded and which encoding the answer may have. Raises Unsupported."""
    flags = 0
    coding = names.get(b"content-encoding")
    if coding is not None and coding != b"identity":
        known = _CODINGS.get(coding)
        if known is None:
            raise Unsupported(_UNKNOWN_CODING)
        flags = int(known)
    accepted = names.get(b"accept-encoding")
    return flags | _preferred(accepted) if accepted is not None else flags


def _preferred(text: bytes) -> int:
    """Triton's rule: the highest q among identity, deflate and gzip; the first of equals; q = 0 excludes; none left means identity."""
    best, flag = 0.0, 0
    for item in text.decode("latin-1").split(","):
        token, *parameters = (part.strip() for part in item.split(";"))
        if token not in _ACCEPTS:
            continue
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if quality > best:
            best, flag = quality, _ACCEPTS[token]
    return flag
