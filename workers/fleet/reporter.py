"""A router's reports to the board."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from functions.errors import BoardUnreachable
from functions.names import Ref
from workers.fleet.board import Board
from workers.fleet.observation import Observation

log = logging.getLogger(__name__)

REPORT_S = 1.0
TTL_S = 5.0
"""A router that has not reported for so long has died."""


async def report(board: Board, source: str, observations: Callable[[], Mapping[Ref, Observation]], every_s: float = REPORT_S) -> None:
    """Publish what ``observations()`` says, until cancelled. A board that is lost is logged once, and once when it is back; nothing
    else depends on it."""
    lost = False
    while True:
        try:
            await board.publish(source, observations(), TTL_S)
        except BoardUnreachable as error:
            if not lost:
                log.warning("board_lost error=%s", error)
            lost = True
        else:
            if lost:
                log.info("board_back")
            lost = False
        await asyncio.sleep(every_s)
