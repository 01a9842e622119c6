"""Publishes bundles and moves tags: a target is warm before its tag moves by one write, and its dependents follow, callees before callers.

    inspect → blobs → record → warm the targets → move their tags → lock the dependents again, warm them → move their tags

Requests complete on the version they started on, so nothing waits for the loser; it stays warm for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from functions.bundle import Inspected
from functions.errors import Conflict, DespinaError, NotFound, PreconditionFailed
from functions.names import LIVE, Ref, tag_name
from functions.records import VersionRecord
from registry.relock import Relock
from registry.service import Registry
from workers.fleet.promotion import WAIT_S, Dependent, Dependents, Outcome, Promotion, Published
from workers.fleet.warming import Fleet, warm

log = logging.getLogger(__name__)

Inspect = Callable[[Path, str, Path], Awaitable[Inspected]]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A dependent that may move."""

    step: Relock
    version: int
    epoch: int
    """Its tag's epoch when it was planned: a tag that somebody moved meanwhile is theirs."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What all moves of one request share."""

    tag: str
    by: str
    release: str
    wait_s: float


class Rollout:
    """Used on one loop; ``inspect(source, name, staging)`` is the throw-away process's word on a bundle.

    Nobody waits for somebody else's target to become warm: a rollback is not held up by the promotion it puts an end to. The writes
    of one function's tags wait for each other, and so do the re-locks that follow from them.
    """

    def __init__(self, registry: Registry, nodes: Fleet, inspect: Inspect, staging: Path) -> None:
        self._registry = registry
        self._nodes = nodes
        self._inspect = inspect
        self._staging = staging
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._following: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._made = 0
        """Requests made so far; each has its number."""
        self._written: dict[tuple[str, str], int] = {}
        """Function and tag → the number of the request that wrote it last."""

    async def publish(
        self,
        source: Path,
        name: str,
        *,
        tag: str = LIVE,
        promote: bool = True,
        dependents: Dependents = Dependents.MOVE,
        wait_s: float = WAIT_S,
        by: str,
        release: str,
        with_: Mapping[str, int] | None = None,
    ) -> Published:
        """Record the bundle at ``source`` (an archive or a directory) as a version of ``name``, and move ``tag`` to it if
        ``promote``. A recorded version stays also when it cannot be promoted; the promotion says why.

        Raises BundleRefused, TooLarge, InvalidRequest, StoreUnreachable, with nothing recorded."""
        staging = self._staging / f"publish-{secrets.token_hex(8)}"
        try:
            inspected = await self._inspect(source, name, staging)
            record, created = await asyncio.to_thread(self._registry.record, inspected, name, by, with_)
        finally:
            await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
        log.info("published version=%s digest=%s created=%s by=%s release=%s", record.ref, record.digest, created, by, release)
        if promote:
            try:
                promotion = await self.move(
                    {name: record.version}, tag, expect=None, dependents=dependents, wait_s=wait_s, by=by, release=release, reason="promote"
                )
            except DespinaError as error:  # recorded it is; its caller must hear both
                promotion = Promotion(Outcome.FAILED, str(error), error=error)
        else:
            promotion = Promotion(Outcome.SKIPPED, "it was not asked to be promoted")
        return Published(record, created, self._tags(record), promotion)

    async def move(
        self,
        moves: Mapping[str, int],
        tag: str = LIVE,
        *,
        expect: int | None = None,
        dependents: Dependents = Dependents.MOVE,
        wait_s: float = WAIT_S,
        by: str,
        release: str,
        held: bool = False,
        reason: str = "set",
    ) -> Promotion:
        """Point ``tag`` of each function in ``moves`` at its version, as one release; ``expect`` is the epoch that the tags must be at.

        A target that cannot be made ready within ``wait_s``, or (``require``) a dependent that cannot follow, ends it as ``failed``
        with nothing moved. Dependents have ``wait_s`` of their own. Raises PreconditionFailed, NotFound, InvalidRequest,
        StoreUnreachable, and Conflict, also when a request made later has moved a tag while this one's target was warmed."""
        request = _Request(tag, by, release, wait_s)
        self._made = number = self._made + 1
        await asyncio.to_thread(self._check, moves, tag, expect)
        try:
            await self._warm_targets(moves, request)
        except DespinaError as error:
            return Promotion(Outcome.FAILED, str(error), error=error)

        async def write() -> None:
            async with _all(self._writing, moves):
                self._in_time(moves, tag, number)
                for name, version in moves.items():
                    await asyncio.to_thread(self._registry.move, name, tag, version, by, release, expect, held, reason)
                    log.info("moved function=%s tag=%s version=%d by=%s release=%s reason=%s", name, tag, version, by, release, reason)
                    self._written[name, tag] = number

        if dependents is Dependents.REQUIRE:
            async with _all(self._following, moves):
                ready, told = await self._prepare(moves, request)
                if told:
                    return Promotion(Outcome.FAILED, f"not all dependents can follow: {told[0].name}: {told[0].reason}", tuple(told))
                await write()
                return Promotion(Outcome.MOVED, "", tuple([await self._follow(each, request) for each in ready]))
        await write()
        if dependents is Dependents.KEEP:
            return Promotion(Outcome.MOVED, "", tuple(await self._kept(moves, tag)))
        async with _all(self._following, moves):
            # Whoever moved a target on meanwhile looks after its dependents: theirs is the newer word.
            current = {name: version for name, version in moves.items() if self._at(name, tag) == version}
            ready, told = await self._prepare(current, request) if current else ([], [])
            moved = [await self._follow(each, request) for each in ready]
            return Promotion(Outcome.MOVED, "", (*moved, *told))

    async def rollback(
        self,
        name: str,
        to: int | str | None = None,
        *,
        tag: str = LIVE,
        dependents: Dependents = Dependents.MOVE,
        wait_s: float = WAIT_S,
        by: str,
        release: str,
    ) -> Promotion:
        """Point ``tag`` back at ``to`` (a version, another tag's name; None: what it was before), and hold it there: re-locks pass
        it by until it is moved by hand. Ends and raises like ``move``."""
        version = await asyncio.to_thread(self._registry.rollback_version, name, tag, to)
        return await self.move(
            {name: version}, tag, dependents=dependents, wait_s=wait_s, by=by, release=release, held=True, reason="rollback"
        )

    # -- targets ------------------------------------------------------------------------------------------------------

    def _check(self, moves: Mapping[str, int], tag: str, expect: int | None) -> None:
        """What would be refused in the end is refused before anything is warmed."""
        tag_name(tag)
        for name, version in moves.items():
            self._registry.catalog.refresh(name)
            self._registry.catalog.record(name, version)
            epoch = self._epoch(name, tag)
            if expect is not None and expect != epoch:
                raise PreconditionFailed(f"the tag '{tag}' of '{name}' is at epoch {epoch}, not {expect}")

    def _in_time(self, moves: Mapping[str, int], tag: str, number: int) -> None:
        """Raises Conflict for a request that was overtaken, while its target was warmed, by one that was made later."""
        for name, version in moves.items():
            if self._written.get((name, tag), 0) > number:
                raise Conflict(
                    f"the tag '{tag}' of '{name}' was moved to {self._at(name, tag)} by a later request while {version} was warmed; "
                    f"move it again if {version} is still wanted"
                )

    async def _warm_targets(self, moves: Mapping[str, int], request: _Request) -> None:
        warming = [self._warm(Ref(name, version), request.tag, request) for name, version in moves.items()]
        results = await asyncio.gather(*warming, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _warm(self, winner: Ref, tag: str, request: _Request) -> None:
        try:
            losers = {Ref(winner.name, version) for version in self._registry.catalog.tag(winner.name, tag).versions} - {winner}
        except NotFound:
            losers = set()
        await warm(self._nodes, winner, losers, request.wait_s, request.release)

    # -- dependents ---------------------------------------------------------------------------------------------------

    async def _prepare(self, moves: Mapping[str, int], request: _Request) -> tuple[list[_Ready], list[Dependent]]:
        """Lock every dependent again and warm it; those that may move, callees first, and those that stay. No tag moves.

        One that cannot follow is planned around: what rests on it alone then does not move either, and the others' steps come out
        as they were.
        """
        failed: dict[str, str] = {}
        warmed: dict[str, _Ready] = {}
        while True:
            steps = await asyncio.to_thread(self._registry.plan, moves, request.tag, failed)
            ready: list[_Ready] = []
            broken: dict[str, str] = {}
            for step in steps:
                if step.passed:
                    continue
                try:
                    record = await asyncio.to_thread(self._registry.relock, step, request.by)
                except DespinaError as error:
                    broken[step.name] = str(error)
                    break  # what follows may rest on it
                ready.append(_Ready(step, record.version, self._epoch(step.name, step.tag)))
            if not broken:
                broken = await self._warm_dependents([each for each in ready if each.step.digest not in warmed], request)
                warmed.update((each.step.digest, each) for each in ready if each.step.name not in broken)
            if not broken:
                return ready, [_stayed(step, failed) for step in steps if step.passed]
            failed |= broken

    async def _warm_dependents(self, ready: list[_Ready], request: _Request) -> dict[str, str]:
        """Those that could not be warmed, with the reason."""
        results = await asyncio.gather(
            *(self._warm(Ref(each.step.name, each.version), each.step.tag, request) for each in ready), return_exceptions=True
        )
        broken: dict[str, str] = {}
        for each, result in zip(ready, results, strict=True):
            if isinstance(result, DespinaError):
                broken[each.step.name] = str(result)
            elif isinstance(result, BaseException):
                raise result
        return broken

    async def _follow(self, ready: _Ready, request: _Request) -> Dependent:
        step = ready.step
        try:
            await asyncio.to_thread(
                self._registry.move, step.name, step.tag, ready.version, request.by, request.release, ready.epoch, False, "relock"
            )
        except DespinaError as error:
            log.warning("dependent_stayed function=%s tag=%s reason=%s release=%s", step.name, step.tag, error, request.release)
            return Dependent(step.name, Outcome.STAYED, str(error), step.base)
        log.info("moved function=%s tag=%s version=%d release=%s reason=relock", step.name, step.tag, ready.version, request.release)
        return Dependent(step.name, Outcome.MOVED, "", ready.version)

    async def _kept(self, moves: Mapping[str, int], tag: str) -> list[Dependent]:
        steps = await asyncio.to_thread(self._registry.plan, moves, tag)
        return [Dependent(step.name, Outcome.STAYED, step.passed or "kept", step.base) for step in steps]

    def _at(self, name: str, tag: str) -> int:
        record = self._registry.catalog.kept(name).tags.get(tag)
        return record.version if record is not None else 0

    def _epoch(self, name: str, tag: str) -> int:
        record = self._registry.catalog.kept(name).tags.get(tag)
        return record.epoch if record is not None else 0

    def _tags(self, record: VersionRecord) -> tuple[str, ...]:
        tags = self._registry.catalog.tags(record.name)
        return tuple(sorted(tag for tag, points in tags.items() if record.version in points.versions))


@contextlib.asynccontextmanager
async def _all(locks: Mapping[str, asyncio.Lock], names: Iterable[str]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for name in sorted(names):  # in one order, so that two releases cannot wait for each other
            await stack.enter_async_context(locks[name])
        yield


def _stayed(step: Relock, failed: Mapping[str, str]) -> Dependent:
    return Dependent(step.name, Outcome.STAYED, failed.get(step.name, step.passed), step.base)
