"""What one member of the closure counts, in the replica's shared page. Names, units and rules are Triton's.

Durations are sums over requests: in a batch of n requests each adds the batch's whole compute time. A failed request counts
nowhere but in its failure series; requests refused before they were queued (malformed, unknown) count nowhere at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from functions.errors import Cancelled, CapacityError, DespinaError, ModelFailed
from functions.protocol.values import Response
from workers.process.page import Page
from workers.process.spent import Spent

REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")


class Counters:
    """One member's series. ``counting`` is set after warm-up, which is not counted. Any thread may record."""

    def __init__(self, page: Page, name: str, version: int, tags: Mapping[str, str]) -> None:
        labels = {"model": name, "version": str(version), **{f"_{key}": value for key, value in tags.items()}}
        self.counting = False
        self._page, self._labels = page, labels
        self._values = page.values
        self._lock = threading.Lock()
        self._success = page.series("nv_inference_request_success", labels)
        self._failure = {reason: page.series("nv_inference_request_failure", {**labels, "reason": reason}) for reason in REASONS}
        self._count = page.series("nv_inference_count", labels)
        self._executions = page.series("nv_inference_exec_count", labels)
        self._request_us = page.series("nv_inference_request_duration_us", labels)
        self._queue_us = page.series("nv_inference_queue_duration_us", labels)
        self._input_us = page.series("nv_inference_compute_input_duration_us", labels)
        self._infer_us = page.series("nv_inference_compute_infer_duration_us", labels)
        self._output_us = page.series("nv_inference_compute_output_duration_us", labels)
        self._failure_us = page.series("despina_failure_duration_us", labels)
        self._last_ms = page.series("despina_last_inference_ms", labels, "gauge")
        self._sizes: dict[int, tuple[int, int, int, int]] = {}

    def executed(
        self, sizes: Sequence[int], responses: Sequence[Response], queue_us: float, input_us: float, infer_us: float, output_us: float
    ) -> None:
        """One batch ran. ``sizes`` are the rows of each of its requests; the four durations are the batch's own."""
        if not self.counting:
            return
        rows = answered = 0
        failed: list[DespinaError] = []
        for size, response in zip(sizes, responses, strict=True):
            if response.error is None:
                rows += size
                answered += 1
            else:
                failed.append(response.error)
        spent_us = queue_us + input_us + infer_us + output_us
        with self._lock:
            values = self._values
            values[self._executions] += 1
            values[self._last_ms] = time.time_ns() // 1_000_000
            for error in failed:
                values[self._failure[reason(error)]] += 1
                values[self._failure_us] += spent_us
            if not answered:
                return
            values[self._success] += answered
            values[self._count] += rows
            values[self._queue_us] += answered * queue_us
            values[self._input_us] += answered * input_us
            values[self._infer_us] += answered * infer_us
            values[self._output_us] += answered * output_us
            values[self._request_us] += answered * spent_us
            batches, in_us, run_us, out_us = self._sizes.get(sum(sizes)) or self._size(sum(sizes))
            values[batches] += 1
            values[in_us] += input_us
            values[run_us] += infer_us
            values[out_us] += output_us

    def door(self, queue_us: float, input_us: float, output_us: float) -> None:
        """What calls from outside spent besides: waiting to be run, being decoded, being encoded. Sums over answered calls."""
        if self.counting:
            with self._lock:
                self._values[self._queue_us] += queue_us
                self._values[self._input_us] += input_us
                self._values[self._output_us] += output_us
                self._values[self._request_us] += queue_us + input_us + output_us

    def dropped(self, error: DespinaError, waited_us: float) -> None:
        """One queued request ended without being run: expired or cancelled."""
        if self.counting:
            with self._lock:
                self._values[self._failure[reason(error)]] += 1
                self._values[self._failure_us] += waited_us

    def passed(self, sizes: Sequence[int], responses: Sequence[Response], spent: Spent) -> None:
        """An ensemble ran: its queue and compute are the sums of its steps', each request is an execution. A failure counts twice, as the
        step's own and as passed on: so Triton documents it."""
        if not self.counting:
            return
        rows = [size for size, response in zip(sizes, responses, strict=True) if response.error is None]
        with self._lock:
            values = self._values
            values[self._last_ms] = time.time_ns() // 1_000_000
            values[self._failure["OTHER"]] += 2 * (len(responses) - len(rows))
            values[self._success] += len(rows)
            values[self._executions] += len(rows)
            values[self._count] += sum(rows)
            values[self._queue_us] += spent.queue_us
            values[self._input_us] += spent.input_us
            values[self._infer_us] += spent.infer_us
            values[self._output_us] += spent.output_us
            values[self._request_us] += spent.queue_us + spent.input_us + spent.infer_us + spent.output_us

    def _size(self, rows: int) -> tuple[int, int, int, int]:
        labels = {**self._labels, "size": str(rows)}
        found = self._sizes[rows] = (
            self._page.series("despina_batches_total", labels),
            self._page.series("despina_batch_input_us_total", labels),
            self._page.series("despina_batch_infer_us_total", labels),
            self._page.series("despina_batch_output_us_total", labels),
        )
        return found


def reason(error: DespinaError) -> str:
    """Triton's word for why a queued request failed."""
    if isinstance(error, Cancelled):
        return "CANCELED"
    if isinstance(error, CapacityError):
        return "REJECTED"
    return "BACKEND" if isinstance(error, ModelFailed) else "OTHER"
