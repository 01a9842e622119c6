"""The calls that wait in this process, the batches cut from them, and their answers.

Calls are decoded as they are taken in, so that a batch can be cut by their shapes, and a malformed one is answered without
running anything. At each cut what has expired or was cancelled is dropped. Where the root has one instance, its batches run here,
on the main thread, from cut to answer; where it has several, each has a thread, which leaves its answers to be written.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Sequence

from functions.errors import Cancelled, DeadlineExceeded, DespinaError
from functions.protocol import frames
from functions.protocol.frames import Kind
from functions.protocol.v2 import Codec
from functions.protocol.values import Response
from workers.process.batching import Policy, cut, key
from workers.process.call import Call
from workers.process.counters import Counters
from workers.process.door import Door
from workers.process.link import CLOGGED_BYTES
from workers.process.log import our_fault
from workers.process.model import Runs
from workers.process.page import Page
from workers.process.turnstile import Turnstile

Answer = tuple[Call, Sequence[bytes]]
"""A call and the frame that ends it, in parts."""
COALESCE_S = 0.001
"""Batches that end within this time of a turn's beginning are written together; after it, what is done is written first."""


class Scheduler:
    """Main thread only, but for ``_work``. ``in_order``: answers leave in the order in which their calls were started
    (``preserve_ordering``), also where several threads run them."""

    def __init__(
        self,
        root: Runs,
        codec: Codec,
        counters: Counters,
        door: Door,
        page: Page,
        threads: int,
        *,
        batching: bool,
        in_order: bool,
    ) -> None:
        self._root, self._codec, self._counters, self._door, self._page = root, codec, counters, door, page
        self._policy: Policy = root.policy
        self._keyed = self._policy.largest > 1
        self._scope = max(1, self._policy.largest) + 1
        self._batching = batching
        self._waiting: list[Call] = []
        self._idle = list(range(threads)) if threads > 1 else []
        self._inline = threads == 1
        self._running = 0
        self._finished: deque[int] = deque()
        self._started = 0
        self._turnstile = Turnstile() if in_order and threads > 1 else None
        self._batches: queue.SimpleQueue[tuple[int, int, list[Call]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"instance-{slot}", daemon=True) for slot in self._idle]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """Batches that have started and not ended."""
        return self._running

    def step(self) -> float | None:
        """Take in what arrived and start what may start, until nothing more may or the turn has gone on long enough. → seconds
        until there is something to do again without a new frame; None: nothing."""
        begun = time.monotonic()
        self.collect()
        while True:
            if self._door.arrived:
                self._take_in()
            if not self._waiting or not (self._inline or self._idle):
                return None
            now = time.monotonic()
            able = self._able(now)
            decision = cut(able, now, self._policy)
            if not decision.take:
                return max(0.0, decision.until - now) if decision.until is not None else None
            self._start(self._taken(able[: decision.take]))
            if self._inline and time.monotonic() - begun > COALESCE_S:
                return 0.0

    def collect(self) -> None:
        """Take note of the batches that ended in other threads."""
        while self._finished:
            self._idle.append(self._finished.popleft())
            self._running -= 1

    def return_all(self) -> None:
        """Give every call that was not started back to its router, to be queued again."""
        for call in (*self._waiting, *self._door.arrived):
            self._door.answer(call, (frames.bare(Kind.RETURN, call.id),))
        self._waiting.clear()
        self._door.arrived.clear()

    def close(self) -> None:
        """End the threads; nothing is running any more."""
        for _ in self._threads:
            self._batches.put(None)
        for thread in self._threads:
            thread.join()

    def _take_in(self) -> None:
        arrived = self._door.arrived
        while arrived:
            call = arrived.popleft()
            started = time.perf_counter_ns()
            try:
                decoded = self._codec.decode(call.body, call.header_length, call.flags)
            except DespinaError as error:
                self._fail(call, error)
                continue
            except Exception as error:
                self._fail(call, our_fault("decoding a call", error))
                continue
            request = decoded.request
            request.deadline, request.hops, request.origin, request.cancelled = call.deadline, call.hops, call, call.cancelled
            call.decoded = decoded
            if self._keyed:
                call.key = key(request)
                if self._batching:
                    call.rows = request.rows
            call.decode_us = (time.perf_counter_ns() - started) / 1e3
            self._waiting.append(call)

    def _able(self, now: float) -> list[Call]:
        """The first of those that may be started, as many as a batch can hold and one more, for ``cut`` to see what follows."""
        head = self._waiting[: self._scope]
        for call in head:
            if call.gone or call.deadline <= now or call.link.unsent_bytes > CLOGGED_BYTES:
                break
        else:
            return head
        self._drop(now)
        return [call for call in self._waiting if not call.link.clogged][: self._scope]

    def _taken(self, batch: list[Call]) -> list[Call]:
        """``batch``, which waits no longer."""
        if batch == self._waiting[: len(batch)]:
            del self._waiting[: len(batch)]
        else:
            taken = set(batch)
            self._waiting = [call for call in self._waiting if call not in taken]
        return batch

    def _drop(self, now: float) -> None:
        """Answer those that need not be run any more."""
        staying = []
        for call in self._waiting:
            error: DespinaError
            if call.gone:
                error = Cancelled("the call was cancelled before it was run")
            elif call.deadline <= now:
                error = DeadlineExceeded("the call's time ran out before it was run")
            else:
                staying.append(call)
                continue
            self._counters.dropped(error, (now - call.queued_s) * 1e6)
            self._fail(call, error)
        self._waiting = staying

    def _start(self, batch: list[Call]) -> None:
        if self._inline:
            self._post(self._run(0, batch))
            return
        self._running += 1
        self._batches.put((self._idle.pop(), self._started, batch))
        self._started += 1

    def _work(self) -> None:
        """One instance's thread."""
        while (taken := self._batches.get()) is not None:
            slot, number, batch = taken
            answers = self._run(slot, batch)
            if self._turnstile is None:
                self._post(answers)
            else:
                self._turnstile.leave(number, lambda answers=answers: self._post(answers))  # type: ignore[misc]
            self._finished.append(slot)
            self._door.wake()

    def _run(self, slot: int, batch: Sequence[Call]) -> list[Answer]:
        self._page.start(slot, [call.page_id for call in batch], time.monotonic_ns())
        started = time.monotonic()
        try:
            responses = self._root.batch([call.decoded.request for call in batch])
            return self._answers(batch, responses, started)
        except Exception as error:
            fault = our_fault("running a batch", error)
            return [(call, _failure(call, fault)) for call in batch]
        finally:
            self._page.finish(slot)

    def _answers(self, batch: Sequence[Call], responses: Sequence[Response], started: float) -> list[Answer]:
        answers: list[Answer] = []
        queue_us = decode_us = encode_us = 0.0
        for call, response in zip(batch, responses, strict=True):
            begun = time.perf_counter_ns()
            try:
                encoded = self._codec.encode(call.decoded, response)
            except DespinaError as error:
                answers.append((call, _failure(call, error)))
                continue
            parts = encoded.parts
            head = frames.reply(call.id, sum(map(len, parts)), encoded.header_length, encoded.flags)
            answers.append((call, (head, *parts)))
            encode_us += (time.perf_counter_ns() - begun) / 1e3
            queue_us += (started - call.queued_s) * 1e6
            decode_us += call.decode_us
        self._counters.door(queue_us, decode_us, encode_us)
        return answers

    def _post(self, answers: Sequence[Answer]) -> None:
        for call, parts in answers:
            self._door.answer(call, parts)

    def _fail(self, call: Call, error: DespinaError) -> None:
        self._door.answer(call, _failure(call, error))


def _failure(call: Call, error: DespinaError) -> tuple[bytes]:
    return (frames.failure(call.id, error.wire, error.message),)
