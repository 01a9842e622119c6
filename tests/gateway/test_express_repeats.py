"""Requests with the head of the one before: recognised without being parsed, and treated in every respect as if they had been."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from functions.errors import Draining, QueueFull
from functions.protocol.frames import Flag
from gateway.express import Express
from gateway.settings import HttpLimits
from tests.gateway.server import Served, Wire, certificate, error_of, request, serving

ECHO = "/v2/models/late-echo/infer"


class Parsed:
    """How many requests the HTTP parser has seen."""

    count = 0


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    seen, begin = Parsed(), Express.on_message_begin

    def counting(self: Express) -> None:
        seen.count += 1
        begin(self)

    monkeypatch.setattr(Express, "on_message_begin", counting)
    return seen


def reads(served: Served, wire: Wire, *pieces: bytes) -> None:
    """Let the connection read exactly these pieces, one a read, before the loop does anything else."""
    port = wire.sock.getsockname()[1]

    def read() -> None:
        (connection,) = [each for each in served.server.server_state.connections if each.client and each.client[1] == port]
        for piece in pieces:
            connection.data_received(piece)

    served.on_loop(read)


def known(served: Served, body: bytes = b"first", path: str = ECHO) -> Wire:
    """A connection that has met the head of a request with such a body, and answered it."""
    wire = served.connect()
    wire.send(request(path, body))

    assert body == wire.answer()[2]
    return wire


def test_many_requests_with_one_head_are_each_answered_with_their_own_body_and_parsed_once(served: Served, parsed: Parsed) -> None:
    with served.connect() as wire:
        for n in range(200):
            wire.send(request(ECHO, b"%04d" % n))
            status, headers, body = wire.answer()

            assert (200, b"%04d" % n, "2", "4") == (status, body, headers["despina-version"], headers["content-length"])
    assert 1 == parsed.count


def test_they_are_answered_in_order_though_later_ones_are_ready_first(served: Served, parsed: Parsed) -> None:
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"0"))
        served.router.wait(lambda: len(served.router.held) == before + 1)
        reads(served, wire, *(request("/v2/models/hold/infer", b"%d" % n) for n in range(1, 6)))
        held = served.router.held[before:]

        assert [b"%d" % n for n in range(6)] == [bytes(call.body) for call in held]

        for call in reversed(held):
            served.let(call, b"answer to " + bytes(call.body))

        assert [b"answer to %d" % n for n in range(6)] == [wire.answer()[2] for _ in range(6)]
    assert 1 == parsed.count


@pytest.mark.parametrize("seed", range(8))
def test_it_does_not_matter_how_the_requests_fall_into_reads(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    bodies = [b"%05d" % n for n in range(60)]
    stream = b"".join(request(ECHO, body) for body in bodies)
    size = len(stream) // len(bodies)
    with known(served, b"00000") as wire:
        start = 0
        while start < len(stream):
            step = rng.choice((size, size, size, 1, size - 1, size + 1, 2 * size, rng.randrange(1, 3 * size)))
            reads(served, wire, stream[start : start + step])
            start += step

        assert bodies == [wire.answer()[2] for _ in bodies]


@pytest.mark.parametrize("step", [-5, -1, 1, 5])
def test_a_read_that_holds_a_little_more_or_less_than_one_request_is_parsed(served: Served, step: int) -> None:
    first, second = request(ECHO, b"second"), request(ECHO, b"third!")
    cut = len(first) + step
    with known(served, b"first!") as wire:
        reads(served, wire, (first + second)[:cut], (first + second)[cut:])

        assert [b"second", b"third!"] == [wire.answer()[2] for _ in range(2)]


def test_more_than_may_be_unanswered_at_once_are_all_answered(served: Served) -> None:
    bodies = [b"%03d" % n for n in range(HttpLimits().pipelined * 3)]
    with known(served, b"000") as wire:
        reads(served, wire, *(request(ECHO, body) for body in bodies))

        assert bodies == [wire.answer()[2] for _ in bodies]


@pytest.mark.parametrize(
    ("path", "headers", "version", "flags", "header_length"),
    [
        ("/v2/models/late-echo/versions/1/infer", {}, "1", 0, 2),
        ("/v2/models/late-echo/versions/2/infer", {"Accept-Encoding": "gzip;q=1"}, "2", int(Flag.ACCEPT_GZIP), 2),
        ("/v2/models/late-echo/versions/2/infer", {"Inference-Header-Content-Length": "3"}, "2", 0, 3),
    ],
)
def test_a_head_that_differs_by_one_byte_is_another_head(
    served: Served, path: str, headers: dict[str, str], version: str, flags: int, header_length: int
) -> None:
    usual = {"Inference-Header-Content-Length": "2", "Accept-Encoding": "gzip;q=0"}
    first = request("/v2/models/late-echo/versions/2/infer", b"{} ab", usual)
    second = request(path, b"{} cd", {**usual, **headers})

    assert 1 == sum(one != other for one, other in zip(first[:-5], second[:-5], strict=True))

    with served.connect() as wire:
        wire.send(first)
        wire.answer()
        wire.send(second)
        _, told, body = wire.answer()
        call = served.router.calls[-1]

        assert (b"{} cd", version) == (body, told["despina-version"])
        assert (flags, header_length) == (call.flags, call.header_length)


def test_a_head_of_the_same_size_that_is_not_http_is_refused(served: Served) -> None:
    with known(served) as wire:
        wire.send(b"\x00" + request(ECHO, b"again")[1:])

        assert (400, "invalid_request") == error_of(wire.answer())
        assert wire.ended()


def test_a_tag_that_moves_in_between_takes_effect_at_once() -> None:
    with serving() as served, known(served) as wire:
        served.versions.live = 1
        wire.send(request(ECHO, b"again"))

        assert "1" == wire.answer()[1]["despina-version"]

        served.versions.live = 7
        wire.send(request(ECHO, b"third"))

        assert "7" == wire.answer()[1]["despina-version"], "whose record is read first"

        del served.versions.names["late-echo"]
        wire.send(request(ECHO, b"gone!"))

        assert (404, "not_found") == error_of(wire.answer())


REFUSED = {
    "method": (request(ECHO, b"body", method="PUT"), 405),
    "coding": (request(ECHO, b"body", {"Content-Encoding": "br"}), 501),
    "header length": (request(ECHO, b"body", {"Inference-Header-Content-Length": "x"}), 400),
    "timeout": (request(ECHO, b"body", {"Despina-Timeout-Us": "0"}), 400),
    "twice": (request(ECHO, b"body", {"Despina-Timeout-Us": "1", "despina-timeout-us": "2"}), 400),
    "priority": (request(ECHO, b"body", {"Despina-Priority": "1"}), 501),
    "name": (request("/v2/models/nope/infer", b"body"), 404),
    "size": (request("/v2/models/late-echo/versions/3/infer", b"body"), 413),
}


@pytest.mark.parametrize(("refused", "status"), REFUSED.values(), ids=REFUSED)
def test_a_refused_request_is_refused_again_and_one_that_is_well_is_served_after_it(served: Served, refused: bytes, status: int) -> None:
    before = len(served.router.held)
    with known(served, b"body") as wire:
        # The held one keeps the refused ones in the line: they are seen as the last of it.
        reads(served, wire, request("/v2/models/hold/infer", b"held"), refused, refused, request(ECHO, b"last"), refused)
        served.let(served.router.held[before], b"let go")

        assert b"let go" == wire.answer()[2]
        assert [status] * 2 == [wire.answer()[0] for _ in range(2)]
        assert b"last" == wire.answer()[2]
        assert status == wire.answer()[0]


def test_a_request_that_failed_does_not_spoil_the_next_with_its_head(served: Served) -> None:
    with served.connect() as wire:
        for error in (QueueFull, Draining, QueueFull):
            wire.send(request("/v2/models/late-fail/infer", b"%d" % error.wire))

            assert (503, error.code) == error_of(wire.answer())


def test_requests_of_other_kinds_between_them_keep_their_place(served: Served) -> None:
    get = request("/hello", method="GET")
    hello = b'{"hello":"world"}'
    with known(served) as wire:
        again, third = request(ECHO, b"again"), request(ECHO, b"third")
        reads(served, wire, again, get, third, again, get, get, third)

        assert [b"again", hello, b"third", b"again", hello, hello, b"third"] == [wire.answer()[2] for _ in range(7)]


def test_one_that_follows_another_kind_of_request_waits_for_it(served: Served) -> None:
    served.app_gate.clear()
    with known(served) as wire:
        calls = len(served.router.calls)
        reads(served, wire, request("/slow", method="GET"), request(ECHO, b"again"), request(ECHO, b"third"))

        assert calls == len(served.router.calls), "what is ahead may move the tag"

        served.app_gate.set()

        assert [b'{"slow":"done"}', b"again", b"third"] == [wire.answer()[2] for _ in range(3)]


def test_a_body_of_an_upload_that_looks_like_a_request_is_none(served: Served) -> None:
    looks = request(ECHO, b"again")
    with known(served) as wire:
        reads(served, wire, request("/upload", headers={"Content-Length": str(len(looks))}), looks, looks)

        assert [b'{"size":%d}' % len(looks), b"again"] == [wire.answer()[2] for _ in range(2)]


def test_a_client_that_waits_to_be_asked_for_the_body_is_asked_each_time(served: Served) -> None:
    with served.connect() as wire:
        whole = request(ECHO, b"abc", {"Expect": "100-continue"})
        for _ in range(3):
            wire.send(whole[:-3])

            assert b"HTTP/1.1 100 Continue" == wire.line_head()

            wire.send(whole[-3:])

            assert b"abc" == wire.answer()[2]


def test_a_client_that_expects_to_be_asked_and_sends_at_once_is_answered_each_time(served: Served) -> None:
    with served.connect() as wire:
        for body in (b"one", b"two", b"six"):
            wire.send(request(ECHO, body, {"Expect": "100-continue"}))
            head = wire.line_head()
            while head == b"HTTP/1.1 100 Continue":
                head = wire.line_head()
            wire.buffer = head + b"\r\n\r\n" + wire.buffer

            assert body == wire.answer()[2]


def test_a_head_that_ends_the_connection_ends_it(served: Served, parsed: Parsed) -> None:
    last = request(ECHO, b"again", {"Connection": "close"})
    with known(served) as wire:
        reads(served, wire, last, last)

        assert (b"again", "close") == ((answer := wire.answer())[2], answer[1]["connection"])
        assert wire.ended()
    assert 2 == parsed.count


def test_http_1_0_is_answered_in_its_own_way_each_time(served: Served) -> None:
    with served.connect() as wire:
        for _ in range(3):
            wire.send(b"POST /v2/models/late-echo/infer HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na")

            assert "keep-alive" == wire.answer()[1]["connection"]


def test_they_are_recognised_under_tls(tmp_path: Path, parsed: Parsed) -> None:
    cert = certificate(tmp_path)
    with serving(cert=cert) as served, served.connect_tls(cert[0]) as wire:
        for n in range(20):
            wire.send(request(ECHO, b"%02d" % n))

            assert b"%02d" % n == wire.answer()[2]
    assert 1 == parsed.count


def test_a_client_that_leaves_cancels_them(served: Served) -> None:
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a"))
        served.router.wait(lambda: len(served.router.held) == before + 1)
        reads(served, wire, request("/v2/models/hold/infer", b"b"), request("/v2/models/hold/infer", b"c"))
        calls = served.router.held[before:]

        assert 3 == len(calls)
    served.router.wait(lambda: all(call in served.router.cancelled for call in calls))


def test_the_limit_on_a_body_is_that_of_the_version_that_is_meant_now() -> None:
    with serving() as served, known(served) as wire:
        served.versions.live = 3
        wire.send(request(ECHO, b"again"))

        assert (413, "too_large") == error_of(wire.answer())

        served.versions.live = 2
        wire.send(request(ECHO, b"third"))

        assert b"third" == wire.answer()[2], "it was thrown away whole, and the connection goes on"


def test_they_count_against_the_bound_on_all_bodies() -> None:
    with serving(HttpLimits(bodies_mb=1)) as served, known(served) as wire, served.connect() as hog:
        hog.send(request("/v2/models/hold/infer", bytes((1 << 20) - 4)))
        served.router.wait(lambda: len(served.router.held) == 1)
        wire.send(request(ECHO, b"again"))
        status, headers, _ = wire.answer()

        assert (503, "queue_full", "1") == (status, headers["despina-error"], headers["retry-after"])

        served.let(served.router.held[0])
        hog.answer()
        for _ in range(3):
            wire.send(request(ECHO, b"third"))

            assert b"third" == wire.answer()[2], "what they held is given back"


def test_none_is_taken_once_the_connection_drains() -> None:
    with serving() as served, served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a"))
        served.router.wait(lambda: len(served.router.held) == 1)
        (connection,) = served.server.server_state.connections
        served.on_loop(connection.shutdown)
        reads(served, wire, request("/v2/models/hold/infer", b"b"))

        assert 1 == len(served.router.held)

        served.let(served.router.held[0], b"done")

        assert (b"done", "close") == ((answer := wire.answer())[2], answer[1]["connection"])
        assert wire.ended()
