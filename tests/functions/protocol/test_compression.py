from __future__ import annotations

import gzip
import zlib

import pytest

from functions.errors import InvalidRequest, TooLarge
from functions.protocol.compression import compress, decompress
from functions.protocol.frames import Flag


@pytest.mark.parametrize("packed", [gzip.compress(b"hello"), zlib.compress(b"hello")])
def test_both_headers_are_recognised(packed: bytes) -> None:
    assert b"hello" == decompress(memoryview(packed), 5)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "nothing to be decompressed"),
        (b"plain text", "neither gzip nor deflate"),
        (zlib.compress(b"hello")[2:-4], "neither gzip nor deflate"),
        (gzip.compress(b"hello")[:-1], "ends before its data does"),
        (gzip.compress(b"hello") + b"xy", "2 bytes follow the end"),
    ],
)
def test_what_is_not_one_whole_stream_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        decompress(body, 100)


def test_a_bomb_is_refused_while_it_unpacks() -> None:
    bomb = gzip.compress(bytes(50 << 20))

    with pytest.raises(TooLarge, match="maximum allowed value of 1000 bytes"):
        decompress(bomb, 1000)


def test_parts_stay_as_they_are_when_nothing_is_accepted() -> None:
    parts = [b"a", b"b"]

    assert (parts, 0) == compress(parts, int(Flag.GZIP))
