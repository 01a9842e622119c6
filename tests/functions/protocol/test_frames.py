"""Frames: what one end writes the other reads, however the bytes arrive; broken bytes are refused, never guessed at."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import ProtocolError
from functions.protocol import frames
from functions.protocol.frames import Kind, Splitter

Frame = tuple[int, int, int, bytes]


def split(stream: bytes, cuts: list[int] | None = None, **limits: int) -> list[Frame]:
    """The frames of a stream that arrives in pieces cut at ``cuts``."""
    seen: list[Frame] = []
    splitter = Splitter(lambda kind, flags, id, payload: seen.append((kind, flags, id, bytes(payload))), **limits)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    for start, end in pairwise(edges):
        splitter.feed(stream[start:end])
    return seen


SOME = [
    frames.hello(b"t" * 32, b"d" * 32, 7),
    frames.ready(16, 4242, 1),
    frames.call(1, 5, 1_000_000, 3, 250, 1, frames.Flag.GZIP, b'{"a":1}') + b"hello",
    frames.reply(1, 4, 2, frames.Flag.BINARY) + b"body",
    frames.failure(2, 310, "it failed: ü"),
    frames.bare(Kind.CANCEL, 9),
    frames.outcall(3, "other@2", 2, 0) + b"xy",
    frames.result(3, 0),
    frames.bare(Kind.GOODBYE, 0),
]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_arrive_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"".join(SOME)

    assert split(stream) == split(stream, cuts)
    assert [frame[0] for frame in split(stream, cuts)] == [1, 2, 3, 4, 5, 6, 8, 9, 10]


def test_a_stream_of_single_bytes_arrives() -> None:
    stream = b"".join(SOME)

    assert split(stream) == split(stream, list(range(len(stream))))


def test_a_call_reads_as_it_was_written() -> None:
    [(_, flags, id, payload)] = split(SOME[2])
    head, context, body = frames.read_call(memoryview(payload))

    assert frames.CallHead(1_000_000, 3, 250, 0, 1, 7) == head
    assert (bytes(context), bytes(body), flags, id) == (b'{"a":1}', b"hello", 1, 1)


def test_an_outcall_reads_as_it_was_written() -> None:
    [(_, _, _, payload)] = split(SOME[6])
    head, name, context, body = frames.read_outcall(memoryview(payload))

    assert (name, bytes(context), bytes(body), head.header_length) == ("other@2", b"", b"xy", frames.NO_HEADER)


def test_a_reply_and_a_failure_read_as_they_were_written() -> None:
    assert frames.read_reply(memoryview(split(SOME[3])[0][3])) == (2, b"body")
    assert frames.read_failure(memoryview(split(SOME[4])[0][3])) == (310, "it failed: ü")


def test_the_header_of_a_compressed_reply_may_be_longer_than_its_body() -> None:
    """A small gzip reply was taken for a broken frame, and its link closed under everybody else's calls."""
    payload = memoryview(frames.REPLY_HEAD.pack(396) + b"x" * 191)

    assert frames.read_reply(payload, frames.Flag.GZIP) == (396, b"x" * 191)
    with pytest.raises(ProtocolError):
        frames.read_reply(payload)


def test_a_long_wait_is_kept_within_its_field() -> None:
    head, _, _ = frames.read_call(memoryview(split(frames.call(1, 0, 0, waited_us=1 << 40))[0][3]))

    assert head.waited_us == 0xFFFF_FFFF


def test_a_message_over_its_limit_is_cut() -> None:
    _, message = frames.read_failure(memoryview(split(frames.failure(1, 310, "x" * 100_000))[0][3]))

    assert len(message) == frames.MAX_MESSAGE


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"\x02" + SOME[1][1:], "version 2"),
        (b"\x01\x00" + SOME[1][2:], "kind 0"),
        (b"\x01\x0b" + SOME[1][2:], "kind 11"),
        (b"GET / HTTP/1.1\r\n\r\n", "version 71"),
        (frames.prefix(Kind.REPLY, 0, 5_000, 1), "5000 bytes; the limit is 4096"),
    ],
)
def test_a_broken_prefix_is_refused(stream: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        split(stream, max_payload=4096)


@pytest.mark.parametrize(
    ("read", "payload"),
    [
        (frames.read_call, b"short"),
        (frames.read_call, frames.CALL_HEAD.pack(0, 0, 0, 0, 0, 9) + b"8 bytes."),
        (frames.read_outcall, b"short"),
        (frames.read_outcall, frames.CALL_HEAD.pack(0, 0, 0, 0, 0, 0) + b"\x09\x00abc"),
        (frames.read_outcall, frames.CALL_HEAD.pack(0, 0, 0, 0, 0, 0) + b"\x01\x00\xff"),
        (frames.read_reply, b"abc"),
        (frames.read_reply, frames.REPLY_HEAD.pack(5) + b"four"),
        (frames.read_failure, b"x"),
    ],
)
def test_a_broken_payload_is_refused(read: object, payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(memoryview(payload))  # type: ignore[operator]


@given(st.binary(max_size=400))
def test_noise_is_frames_or_a_protocol_error(noise: bytes) -> None:
    try:
        seen = split(noise, max_payload=1 << 16)
    except ProtocolError:
        return

    for kind, _, _, payload in seen:
        assert kind in set(Kind)
        assert len(payload) <= 1 << 16


def test_a_large_payload_is_gathered_once() -> None:
    body = bytes(3_000_000)
    stream = frames.reply(7, len(body)) + body
    [(_, _, id, payload)] = split(stream, list(range(65_536, len(stream), 65_536)))

    assert (7, len(body) + 4) == (id, len(payload))
