"""The express lane over raw sockets: what goes in, what comes out, in which order, and what is refused."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from functions.errors import tree
from functions.protocol.frames import NO_HEADER, Flag
from gateway.settings import HttpLimits
from gateway.statuses import STATUS
from tests.gateway.server import DIGEST, Served, error_of, request, serving

ECHO = "/v2/models/echo/infer"


def test_a_json_body_goes_to_the_router_and_its_reply_comes_back(served: Served) -> None:
    status, headers, body = served.post("echo", b'{"inputs": []}')

    assert (200, b'{"inputs": []}') == (status, body)
    assert {
        "content-type": "application/json",
        "despina-version": "2",
        "despina-digest": DIGEST,
        "content-length": "14",
    } == headers


def test_a_binary_reply_says_where_its_json_ends(served: Served) -> None:
    status, headers, body = served.post("echo", b"{}\x00\x01", {"Inference-Header-Content-Length": "2"})

    assert (200, b"{}\x00\x01") == (status, body)
    assert "application/octet-stream" == headers["content-type"]
    assert "2" == headers["inference-header-content-length"]


@pytest.mark.parametrize(("path", "version"), [("1", "1"), ("2", "2"), ("live", "2"), ("canary", "1")])
def test_a_version_or_a_tag_is_named_in_the_path(served: Served, path: str, version: str) -> None:
    with served.connect() as wire:
        wire.send(request(f"/v2/models/echo/versions/{path}/infer?trace=1", b"x"))

        assert version == wire.answer()[1]["despina-version"]


def test_unknown_functions_and_versions_are_told_in_tritons_words(served: Served) -> None:
    status, headers, body = served.post("nope", b"{}")

    assert (404, "not_found") == (status, headers["despina-error"])
    assert {"error": "Request for unknown model: 'nope' is not found"} == json.loads(body)

    with served.connect() as wire:
        wire.send(request("/v2/models/echo/versions/9/infer", b"{}"))

        assert {"error": "Request for unknown model: 'echo' version 9 is not found"} == json.loads(wire.answer()[2])


@pytest.mark.parametrize("kind", [kind for kind in tree() if kind.wire], ids=lambda kind: kind.code)
def test_each_error_of_the_tree_has_its_status_and_code(served: Served, kind: type) -> None:
    assert (STATUS[kind.code], kind.code) == error_of(served.post("fail", str(kind.wire).encode()))


def test_an_error_of_ours_is_not_told_to_the_caller(served: Served) -> None:
    _, _, body = served.post("fail", b"900")

    assert b"so it goes" not in body


def test_a_full_queue_says_when_to_come_back(served: Served) -> None:
    assert "1" == served.post("fail", b"201")[1]["retry-after"]


def test_one_connection_carries_many_requests(served: Served) -> None:
    with served.connect() as wire:
        for n in range(5):
            wire.send(request(ECHO, b"%d" % n))

            assert b"%d" % n == wire.answer()[2]


def test_pipelined_replies_keep_the_order_of_the_requests(served: Served) -> None:
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a") + request("/v2/models/hold/infer", b"b") + request(ECHO, b"c"))
        served.router.wait(lambda: len(served.router.held) == before + 2)
        first, second = served.router.held[-2:]
        served.let(second, b"second")
        served.let(first, b"first")

        assert [b"first", b"second", b"c"] == [wire.answer()[2] for _ in range(3)]


def test_replies_keep_the_order_when_infer_and_other_requests_are_mixed(served: Served) -> None:
    before = len(served.router.held)
    get = request("/hello", method="GET")
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a") + get + request(ECHO, b"x") + get + get + request(ECHO, b"y"))
        served.router.wait(lambda: len(served.router.held) == before + 1)
        served.let(served.router.held[-1], b"first")

        hello = b'{"hello":"world"}'

        assert [b"first", hello, b"x", hello, hello, b"y"] == [wire.answer()[2] for _ in range(6)]


def test_an_infer_request_waits_for_the_other_request_before_it(served: Served) -> None:
    served.app_gate.clear()
    before = len(served.router.calls)
    with served.connect() as wire, served.connect() as other:
        wire.send(request("/slow", method="GET") + request("/v2/models/echo/versions/1/infer", b"after"))
        other.send(request(ECHO, b"elsewhere"))
        other.answer()

        assert [b"elsewhere"] == [bytes(call.body) for call in served.router.calls[before:]]

        served.app_gate.set()

        assert [b'{"slow":"done"}', b"after"] == [wire.answer()[2] for _ in range(2)]


def test_a_hundred_pipelined_requests_are_all_answered_though_only_some_are_taken_at_once(served: Served) -> None:
    bodies = [b"%d" % n for n in range(100)]
    with served.connect() as wire:
        wire.send(b"".join(request(ECHO, body) for body in bodies))

        assert bodies == [wire.answer()[2] for _ in bodies]


def test_a_chunked_body_arrives_whole(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, headers={"Content-Length": "", "Transfer-Encoding": "chunked"}))
        for piece in (b"3\r\nabc\r\n", b"1", b"\r\nd", b"\r\n0\r\n\r\n"):
            wire.send(piece)

        assert b"abcd" == wire.answer()[2]


def test_a_body_in_one_read_is_passed_on_uncopied_and_one_in_many_reads_is_one_bytearray(served: Served) -> None:
    served.post("echo", b"small")

    assert isinstance(served.router.calls[-1].body, bytes)

    large = bytes(range(256)) * 4000
    status, _, body = served.post("echo", large)

    assert (200, large) == (status, body)
    assert isinstance(served.router.calls[-1].body, bytearray)


def test_a_large_body_for_a_function_that_allows_it_takes_linear_time(served: Served) -> None:
    size = 48 << 20
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/wide/infer", headers={"Content-Length": str(size)}) + bytes(size))
        served.router.wait(lambda: len(served.router.held) == before + 1)

        assert size == len(served.router.held[-1].body)

        served.let(served.router.held.pop())

        assert 200 == wire.answer()[0]


def test_the_body_is_asked_for_when_the_client_waits_to_be_asked(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, headers={"Content-Length": "3", "Expect": "100-continue"}))

        assert b"HTTP/1.1 100 Continue" == wire.line_head()

        wire.send(b"abc")

        assert b"abc" == wire.answer()[2]


def test_a_body_that_would_be_refused_is_not_asked_for(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("/v2/models/nope/infer", headers={"Content-Length": "3", "Expect": "100-continue"}))

        assert (404, "not_found") == error_of(wire.answer())
        assert wire.ended()


def test_head_and_other_methods_are_answered_405_and_the_connection_goes_on(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, method="HEAD"))
        status, headers, _ = wire.answer(bare=True)

        assert (405, "POST") == (status, headers["allow"])

        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            wire.send(request(ECHO, b"some", method=method))
            status, _, body = wire.answer()

            assert (405, {"error": "Method Not Allowed"}) == (status, json.loads(body))


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: -3",
        "Content-Length: +3",
        "Content-Length: 0x3",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, identity",
        "Content-Length: 3\r\nInference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 2",
        "Bad Header: 1",
        "Content-Length : 3",
    ],
)
@pytest.mark.parametrize("path", [ECHO, "/upload"])
def test_a_body_whose_end_is_ambiguous_is_refused_and_the_connection_closed(served: Served, lines: str, path: str) -> None:
    if path == "/upload" and "Inference" in lines:
        pytest.skip("a header of infer requests only")
    with served.connect() as wire:
        wire.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n".encode() + b"3\r\nabc\r\n0\r\n\r\n")

        assert (400, "invalid_request") == error_of(wire.answer())
        if "Inference" not in lines:
            assert wire.ended()


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"hello\r\n\r\n"])
def test_what_is_not_http_is_refused_and_the_connection_closed(served: Served, garbage: bytes) -> None:
    with served.connect() as wire:
        wire.send(garbage)

        assert (400, "invalid_request") == error_of(wire.answer())
        assert wire.ended()


def test_garbage_after_a_request_is_refused_after_that_requests_reply(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, b"fine") + b"\x00\x00\x00\r\n\r\n")

        assert b"fine" == wire.answer()[2]
        assert (400, "invalid_request") == error_of(wire.answer())
        assert wire.ended()


def test_a_bad_chunk_is_refused(served: Served) -> None:
    for path in (ECHO, "/upload"):
        with served.connect() as wire:
            wire.send(request(path, headers={"Content-Length": "", "Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\nzz\r\n")

            assert (400, "invalid_request") == error_of(wire.answer())
            assert wire.ended()


def test_too_many_or_too_large_headers_are_refused(served: Served) -> None:
    many = {f"X-{n}": "1" for n in range(101)}
    with served.connect() as wire:
        wire.send(request(ECHO, headers=many))

        assert (431, "too_large") == error_of(wire.answer())
        assert wire.ended()

    with served.connect() as wire:
        wire.send(request("/hello", headers={"X": "y" * 70_000}))

        assert (431, "too_large") == error_of(wire.answer())


def test_a_header_without_end_is_refused_long_before_it_fills_memory(served: Served) -> None:
    with served.connect() as wire:
        wire.send(b"POST /v2/models/echo/infer HTTP/1.1\r\nX: ")
        sent = 0
        try:
            while sent < 64 << 20:
                wire.send(b"y" * 65_536)
                sent += 65_536
                wire.sock.settimeout(0.001)
                try:
                    wire._more()
                    break
                except TimeoutError:
                    wire.sock.settimeout(10)
        except (BrokenPipeError, ConnectionResetError):
            pytest.fail("the answer was lost in a reset")
        wire.sock.settimeout(10)

        assert sent < 8 << 20
        assert (431, "too_large") == error_of(wire.answer())


def test_a_body_over_the_functions_limit_is_refused_before_it_is_read(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, headers={"Content-Length": str((1 << 20) + 1)}))

        assert (413, "too_large") == error_of(wire.answer())
        assert wire.ended()


def test_json_is_limited_though_the_function_allows_more(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("/v2/models/wide/infer", headers={"Content-Length": str((64 << 20) + 1)}))

        assert (413, "too_large") == error_of(wire.answer())

    with served.connect() as wire:
        header = {"Content-Length": str(65 << 20), "Inference-Header-Content-Length": "2", "Expect": "100-continue"}
        wire.send(request("/v2/models/wide/infer", headers=header))

        assert b"HTTP/1.1 100 Continue" == wire.line_head()


def test_a_chunked_body_is_refused_when_it_grows_over_the_limit(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, headers={"Content-Length": "", "Transfer-Encoding": "chunked"}))
        wire.send(b"100001\r\n" + bytes(0x100001) + b"\r\n0\r\n\r\n")

        assert (413, "too_large") == error_of(wire.answer())
        assert wire.ended()


def test_all_bodies_together_are_limited() -> None:
    with serving(HttpLimits(bodies_mb=1)) as served, served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", bytes(1 << 20)))
        served.router.wait(lambda: len(served.router.held) == 1)
        status, headers, _ = served.post("echo", b"one byte too many")

        assert (503, "queue_full", "1") == (status, headers["despina-error"], headers["retry-after"])

        served.let(served.router.held[0])
        wire.answer()

        assert 200 == served.post("echo", b"now there is room")[0]


def test_a_client_that_leaves_cancels_its_calls(served: Served) -> None:
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a") * 2)
        served.router.wait(lambda: len(served.router.held) == before + 2)
        calls = served.router.held[-2:]
    served.router.wait(lambda: all(call in served.router.cancelled for call in calls))


def test_a_reply_after_the_client_left_harms_nobody(served: Served) -> None:
    before = len(served.router.held)
    with served.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a"))
        served.router.wait(lambda: len(served.router.held) == before + 1)
        call = served.router.held[-1]
    served.router.wait(lambda: call in served.router.cancelled)
    served.let(call)

    assert 200 == served.post("echo", b"{}")[0]


def test_connection_close_is_obeyed(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request(ECHO, b"a", {"Connection": "close"}) + request(ECHO, b"never read"))
        _, headers, body = wire.answer()

        assert (b"a", "close") == (body, headers["connection"])
        assert wire.ended()


def test_http_1_0_closes_unless_told_to_stay(served: Served) -> None:
    with served.connect() as wire:
        wire.send(b"POST /v2/models/echo/infer HTTP/1.0\r\nContent-Length: 1\r\n\r\na")

        assert "close" == wire.answer()[1]["connection"]
        assert wire.ended()

    with served.connect() as wire:
        for _ in range(2):
            wire.send(b"POST /v2/models/echo/infer HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na")

            assert "keep-alive" == wire.answer()[1]["connection"]


def test_an_absolute_url_reaches_the_same_function(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("http://somewhere:8000/v2/models/echo/infer", b"a"))

        assert b"a" == wire.answer()[2]


def test_an_upgrade_is_not_granted_and_ends_the_connection(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("/hello", headers={"Content-Length": "", "Connection": "Upgrade", "Upgrade": "h2c"}, method="GET"))
        status, headers, _ = wire.answer()

        assert (200, "close") == (status, headers["connection"])
        assert wire.ended()

    with served.connect() as wire:
        wire.send(request(ECHO, b"{}", {"Connection": "Upgrade", "Upgrade": "h2c"}))

        assert (400, "invalid_request") == error_of(wire.answer())
        assert wire.ended()


@pytest.mark.parametrize(
    ("accept", "flag"),
    [
        ("gzip", Flag.ACCEPT_GZIP),
        ("deflate, gzip", Flag.ACCEPT_DEFLATE),
        ("gzip;q=0.5, deflate;q=0.8", Flag.ACCEPT_DEFLATE),
        ("identity, gzip", 0),
        ("gzip;q=0", 0),
        ("*", 0),
        ("GZIP", 0),
    ],
)
def test_what_the_client_accepts_travels_as_a_flag(served: Served, accept: str, flag: int) -> None:
    served.post("echo", b"{}", {"Accept-Encoding": accept})

    assert flag == served.router.calls[-1].flags


def test_an_encoded_body_travels_as_it_is(served: Served) -> None:
    packed = gzip.compress(b"{}")
    served.post("echo", packed, {"Content-Encoding": "gzip"})
    call = served.router.calls[-1]

    assert (packed, int(Flag.GZIP), NO_HEADER) == (bytes(call.body), call.flags, call.header_length)


def test_an_unknown_encoding_is_refused_with_those_that_would_do(served: Served) -> None:
    status, headers, body = served.post("echo", b"{}", {"Content-Encoding": "br"})

    assert (501, "gzip, deflate") == (status, headers["accept-encoding"])
    assert {"error": "Unsupported compression type"} == json.loads(body)


@pytest.mark.parametrize("header", ["Inference-Header-Content-Length", "Despina-Timeout-Us"])
def test_a_header_that_is_no_number_is_refused(served: Served, header: str) -> None:
    for value in ("x", "-1", "1.5", "99999999999999999999"):
        assert (400, "invalid_request") == error_of(served.post("echo", b"{}", {header: value}))


def test_the_deadline_is_the_functions_or_the_callers_if_that_is_sooner(served: Served) -> None:
    def remaining(headers: dict[str, str]) -> float:
        now = served.on_loop(served.loop.time)
        served.post("echo", b"{}", headers)
        return served.router.calls[-1].deadline - now

    assert 290 < remaining({}) < 310
    assert 1.9 < remaining({"Despina-Timeout-Us": "2000000"}) < 12
    assert 290 < remaining({"Despina-Timeout-Us": "2000000000000"}) < 310


@pytest.mark.parametrize("header", ["Despina-Priority", "Despina-Sequence"])
def test_a_header_that_nothing_honours_is_refused_and_not_ignored(served: Served, header: str) -> None:
    status, headers, _ = served.post("echo", b"{}", {header: "3"})

    assert (501, "unsupported") == (status, headers["despina-error"])
    assert "accept-encoding" not in headers, "that is for encodings"


def test_a_version_that_was_never_read_is_read_off_the_loop_while_others_are_served(served: Served) -> None:
    served.versions.read_versions.discard(7)
    served.versions.may_read.clear()
    path = "/v2/models/echo/versions/7/infer"
    with served.connect() as wire, served.connect() as chunked:
        wire.send(request(path, b"one") + request(path, b"two") + request("/hello", method="GET"))
        chunked.send(request(path, headers={"Content-Length": "", "Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n0\r\n\r\n")

        assert 200 == served.post("echo", b"meanwhile")[0]

        served.versions.may_read.set()

        assert [b"one", b"two", b'{"hello":"world"}'] == [wire.answer()[2] for _ in range(3)]
        assert b"abc" == chunked.answer()[2]


def test_requests_of_other_kinds_pass_through_untouched(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("/upload", bytes(300_000)))

        assert b'{"size":300000}' == wire.answer()[2]

        wire.send(request("/upload", headers={"Content-Length": "2", "Expect": "100-continue"}))

        assert b"HTTP/1.1 100 Continue" == wire.line_head()

        wire.send(b"ab")

        assert b'{"size":2}' == wire.answer()[2]

        wire.send(request("/nowhere", method="GET"))

        assert 404 == wire.answer()[0]


def test_a_body_that_a_route_did_not_read_ends_the_connection(served: Served) -> None:
    with served.connect() as wire:
        wire.send(request("/unread", headers={"Content-Length": "10000000"}))

        assert 200 == wire.answer()[0]
        assert wire.ended()


def test_two_thousand_broken_requests_leave_the_server_serving(served: Served) -> None:
    import random

    rng = random.Random(5)
    whole = request(ECHO, b'{"inputs": []}', {"Expect": "", "Inference-Header-Content-Length": "14"})
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with served.connect() as wire:
            wire.send(bytes(data))
            wire.sock.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while piece := wire.sock.recv(65536):
                    answer += piece
            except ConnectionResetError:
                continue

            assert b" 500 " not in answer.split(b"\r\n")[0]

    assert 200 == served.post("echo", b"{}")[0]
