"""The express lane against slow senders and slow readers, idle and draining connections, and over TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings import HttpLimits
from tests.gateway.server import Served, Wire, certificate, error_of, request, serving

ECHO = "/v2/models/echo/infer"
QUICK = HttpLimits(header_s=0.2, body_s=0.2, keep_alive_s=0.4, send_s=0.3, linger_s=0.2, body_bytes_per_s=1 << 30, write_buffer_kb=64)


@pytest.fixture(scope="module")
def quick() -> Iterator[Served]:
    with serving(QUICK) as started:
        yield started


def test_headers_that_do_not_end_are_answered_408(quick: Served) -> None:
    with quick.connect() as wire:
        wire.send(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n")

        assert (408, "deadline_exceeded") == error_of(wire.answer())
        assert wire.ended()


def test_headers_that_trickle_are_answered_408(quick: Served) -> None:
    with quick.connect() as wire:
        wire.send(b"GET /hello HTTP/1.1\r\n")
        wire.sock.settimeout(0.05)
        for _ in range(40):
            try:
                wire._more()
                break
            except TimeoutError:
                wire.send(b"X: y\r\n")
        wire.sock.settimeout(10)

        assert (408, "deadline_exceeded") == error_of(wire.answer())


@pytest.mark.parametrize("path", [ECHO, "/upload"])
@pytest.mark.parametrize("head", [{"Content-Length": "10"}, {"Content-Length": "", "Transfer-Encoding": "chunked"}])
def test_a_body_that_does_not_end_is_answered_408(quick: Served, path: str, head: dict[str, str]) -> None:
    with quick.connect() as wire:
        wire.send(request(path, headers=head) + b"5\r\nab")

        assert (408, "deadline_exceeded") == error_of(wire.answer())
        assert wire.ended()


def test_a_408_waits_for_its_turn_behind_a_running_request(quick: Served) -> None:
    before = len(quick.router.held)
    with quick.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a") + b"POST /v2/models/echo/in")
        quick.router.wait(lambda: len(quick.router.held) == before + 1)
        wire.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            wire.sock.recv(1)
        wire.sock.settimeout(10)
        quick.let(quick.router.held[-1], b"late")

        assert b"late" == wire.answer()[2]
        assert (408, "deadline_exceeded") == error_of(wire.answer())


def test_a_body_is_given_the_time_that_its_size_needs() -> None:
    with serving(HttpLimits(body_s=0.1, body_bytes_per_s=10)) as served, served.connect() as wire:
        wire.send(request(ECHO, headers={"Content-Length": "30"}) + b"x" * 20)
        wire.sock.settimeout(0.6)
        with pytest.raises(TimeoutError):
            wire.sock.recv(1)
        wire.sock.settimeout(10)
        wire.send(b"x" * 10)

        assert b"x" * 30 == wire.answer()[2]


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(quick: Served) -> None:
    with quick.connect() as idle:
        assert idle.ended()

    before = len(quick.router.held)
    with quick.connect() as wire:
        wire.send(request("/v2/models/hold/infer", b"a"))
        quick.router.wait(lambda: len(quick.router.held) == before + 1)
        wire.sock.settimeout(0.8)
        with pytest.raises(TimeoutError):
            wire.sock.recv(1)
        wire.sock.settimeout(10)
        quick.let(quick.router.held[-1], b"still here")

        assert b"still here" == wire.answer()[2]
        assert wire.ended(), "and it is idle from then on"


def test_a_client_that_reads_nothing_is_no_longer_read_and_then_cut_off(quick: Served) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", quick.port))
    with Wire(sock) as wire:
        before = len(quick.router.calls)
        wire.send(request("/v2/models/large/infer", b"8000000") * 90)
        closed = threading.Event()
        quick.on_loop(lambda: _when_closed(quick, wire.sock.getsockname()[1], closed))

        assert closed.wait(10)
        assert len(quick.router.calls) - before <= 2 * QUICK.pipelined, "replies that nobody reads do not pile up"


def test_a_slow_reader_that_reads_on_gets_everything() -> None:
    with serving(HttpLimits(write_buffer_kb=64)) as served, served.connect() as wire:
        wire.send(request("/v2/models/large/infer", b"3000000") * 3 + request(ECHO, b"end"))

        assert [3_000_000, 3_000_000, 3_000_000, 3] == [len(wire.answer()[2]) for _ in range(4)]


def test_too_many_connections_are_refused() -> None:
    with serving(HttpLimits(connections=1)) as served, served.connect() as first:
        first.send(request(ECHO, b"a"))

        assert b"a" == first.answer()[2]

        with served.connect() as second:
            assert (503, "queue_full") == error_of(second.answer())
            assert second.ended()


def test_draining_answers_what_was_taken_and_closes_each_connection() -> None:
    with serving() as served, served.connect() as busy, served.connect() as idle, served.connect() as mixed:
        served.app_gate.clear()
        idle.send(request(ECHO, b"a"))
        idle.answer()
        busy.send(request("/v2/models/hold/infer", b"a") + request("/v2/models/hold/infer", b"b"))
        mixed.send(request("/slow", method="GET") + request(ECHO, b"c"))
        served.router.wait(lambda: len(served.router.held) == 2)
        _round_trip(served)
        served.server.should_exit = True

        assert idle.ended()

        for call in served.router.held:
            served.let(call, b"done")
        served.app_gate.set()

        assert [None, "close"] == [busy.answer()[1].get("connection") for _ in range(2)]
        assert busy.ended()
        assert [b'{"slow":"done"}', b"c"] == [mixed.answer()[2] for _ in range(2)]
        assert mixed.ended()


def test_everything_works_over_tls(tmp_path: Path) -> None:
    cert = certificate(tmp_path)
    with serving(cert=cert) as served, served.connect_tls(cert[0]) as wire:
        body = bytes(range(256)) * 3000
        wire.send(request(ECHO, body) + request("/hello", method="GET") + request(ECHO, b"x"))

        assert [body, b'{"hello":"world"}', b"x"] == [wire.answer()[2] for _ in range(3)]

        wire.send(request(ECHO, headers={"Content-Length": "99999999"}))

        assert (413, "too_large") == error_of(wire.answer())
        assert wire.ended()


def _when_closed(served: Served, port: int, closed: threading.Event) -> None:
    """Set ``closed`` once the server has let the connection of this client port go."""
    if any(connection.client and connection.client[1] == port for connection in served.server.server_state.connections):
        served.loop.call_later(0.01, _when_closed, served, port, closed)
    else:
        closed.set()


def _round_trip(served: Served) -> None:
    """Until here, everything sent before has been read by the server."""
    assert 200 == served.post("echo", b"{}")[0]
