"""gzip and deflate of whole bodies. Both directions are bounded: a bomb is refused while it unpacks, not after."""

from __future__ import annotations

import zlib

from functions.errors import InvalidRequest, TooLarge
from functions.protocol.frames import Flag

LEVEL = 1
"""Tensors of floats hardly shrink at any level; 1 costs a fifth of zlib's default."""
_EITHER = 32 + zlib.MAX_WBITS
"""zlib's window bits that detect a gzip or a zlib header."""
_GZIP = 16 + zlib.MAX_WBITS


def decompress(body: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """A gzip or zlib body, unpacked. Both headers are recognised, whichever was announced, as Triton does.
    Raises InvalidRequest when the body is empty, damaged, cut or followed by something else, TooLarge beyond ``limit_bytes``."""
    if not len(body):
        raise InvalidRequest("nothing to be decompressed")
    stream = zlib.decompressobj(_EITHER)
    try:
        data = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is neither gzip nor deflate (zlib): {error}") from None
    if len(data) > limit_bytes:
        raise TooLarge(f"Decompressed data size exceeds the maximum allowed value of {limit_bytes} bytes")
    if not stream.eof:
        raise InvalidRequest(f"the compressed body of {len(body)} bytes ends before its data does")
    if stream.unused_data:
        raise InvalidRequest(f"{len(stream.unused_data)} bytes follow the end of the compressed body")
    return data


def compress(parts: list[bytes], accept: int) -> tuple[list[bytes], int]:
    """The parts as one compressed part and its flag, gzip before deflate; unchanged and 0 when ``accept`` names neither."""
    if accept & Flag.ACCEPT_GZIP:
        flag, bits = Flag.GZIP, _GZIP
    elif accept & Flag.ACCEPT_DEFLATE:
        flag, bits = Flag.DEFLATE, zlib.MAX_WBITS
    else:
        return parts, 0
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, bits)
    packed = [stream.compress(part) for part in parts]
    packed.append(stream.flush())
    return [b"".join(packed)], int(flag)
