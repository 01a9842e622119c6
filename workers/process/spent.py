"""Where the time of a call went, in µs, summed over requests: what an ensemble adds up from its steps."""

from __future__ import annotations


class Spent:
    """One execution's sums; one thread at a time."""

    __slots__ = ("infer_us", "input_us", "output_us", "queue_us")

    def __init__(self) -> None:
        self.queue_us = self.input_us = self.infer_us = self.output_us = 0.0

    def add(self, requests: int, queue_us: float, input_us: float, infer_us: float, output_us: float) -> None:
        """A batch of so many requests took so long: each of them did."""
        self.queue_us += requests * queue_us
        self.input_us += requests * input_us
        self.infer_us += requests * infer_us
        self.output_us += requests * output_us

    def merge(self, other: Spent) -> None:
        self.add(1, other.queue_us, other.input_us, other.infer_us, other.output_us)
