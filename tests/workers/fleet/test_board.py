"""Against the real server that ships with the platform."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions.errors import BoardUnreachable, InvalidRequest
from functions.names import Ref
from tests.workers.fleet.boards import RunningBoard
from workers.fleet.board import RedisBoard, open_board
from workers.fleet.embedded_board import answers, command
from workers.fleet.observation import Observation
from workers.fleet.reporter import report

SEEN = {Ref("f", 3): Observation(1.5, 1, 2, 30, 0.0), Ref("g.x-y_z", 1): Observation(0.0, 0, 0, 1, 12.5)}


@pytest.fixture
def embedded(sockets: Path, tmp_path: Path) -> Iterator[RunningBoard]:
    board = RunningBoard(sockets / "b.sock", tmp_path / "data", tmp_path / "log")
    board.start()
    yield board
    board.stop()


async def test_what_routers_publish_is_read_back_by_source(embedded: RunningBoard) -> None:
    board = open_board(embedded.url)
    await board.publish("one", {}, 60.0)
    await board.publish("one", SEEN, 60.0)
    await board.publish("two", {}, 60.0)

    assert {"one": SEEN, "two": {}} == await board.observations()
    await board.close()


async def test_a_source_that_stops_publishing_disappears(embedded: RunningBoard) -> None:
    board = open_board(embedded.url)
    await board.publish("one", SEEN, 0.001)
    async with asyncio.timeout(20):
        while await board.observations():
            await asyncio.sleep(0.001)
    await board.close()


async def test_state_survives_a_restart_of_the_server(embedded: RunningBoard) -> None:
    board = open_board(embedded.url)
    await board.publish("one", SEEN, 60.0)
    embedded.stop()

    with pytest.raises(BoardUnreachable, match="did not answer"):
        await board.observations()
    with pytest.raises(BoardUnreachable):
        await board.publish("one", SEEN, 60.0)

    embedded.start()

    assert {"one": SEEN} == await board.observations()
    await board.close()


async def test_a_router_reports_until_it_ends_and_logs_a_lost_board_once(embedded: RunningBoard, caplog: pytest.LogCaptureFixture) -> None:

    board, asked = open_board(embedded.url), 0
    caplog.set_level("INFO")

    def observations() -> dict[Ref, Observation]:
        nonlocal asked
        asked += 1
        return SEEN

    async def reach(count: int) -> None:
        async with asyncio.timeout(20):
            while asked < count:
                await asyncio.sleep(0.005)

    reporting = asyncio.create_task(report(board, "gateway", observations, every_s=0.01))
    await reach(2)

    assert {"gateway": SEEN} == await board.observations()

    embedded.stop()
    await reach(asked + 3)
    embedded.start()
    await reach(asked + 2)
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)

    assert ["board_lost", "board_back"] == [line.getMessage().split()[0] for line in caplog.records if "board_" in line.getMessage()]
    await board.close()


@pytest.mark.parametrize("url", ["file:///tmp/x", "nonsense", ""])
def test_a_url_that_is_no_board_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="redis://host:port/0"):
        open_board(url)


async def test_an_unreachable_board_is_told_without_its_password() -> None:
    board = open_board("redis://user:geheim@127.0.0.1:1/0")
    with pytest.raises(BoardUnreachable) as refusal:
        await board.observations()

    assert "geheim" not in str(refusal.value)
    await board.close()


def test_a_board_that_cannot_start_says_why_in_its_log(tmp_path: Path, sockets: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "appendonlydir").write_text("in the way")
    ended = subprocess.run(command(sockets / "b.sock", tmp_path / "data", tmp_path / "log"), stdin=subprocess.DEVNULL, timeout=20)

    assert 0 != ended.returncode
    assert "append" in (tmp_path / "log").read_text()
    assert not answers(sockets / "b.sock")


def test_a_socket_path_that_the_kernel_would_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="limit is 107"):
        command(Path("/tmp") / ("x" * 120), tmp_path, tmp_path / "log")


@pytest.mark.parametrize("end", [None, ConnectionError("Connection closed by server.")])
async def test_a_cancellation_that_the_client_library_swallows_still_ends_a_report(end: ConnectionError | None) -> None:
    asked = asyncio.Event()

    class Deaf:
        async def set(self, *_: object, **__: object) -> None:
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Future()
            if end is not None:
                raise end

    reporting = asyncio.create_task(report(RedisBoard(Deaf(), "unix:///b"), "gateway", lambda: SEEN))  # type: ignore[arg-type]
    await asked.wait()
    reporting.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(reporting, return_exceptions=True)

    assert reporting.cancelled()
