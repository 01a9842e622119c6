"""The held-out digits put to a function, one call each: how often it is right, what it escalates, what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from functions.examples.client import Client
from functions.examples.digits import Digits

COMPUTE = "nv_inference_compute_infer_duration_us"
ROWS = "nv_inference_count"
CHEAP, EXPENSIVE = "digits_small", "digits_big"


@dataclass(frozen=True, slots=True)
class Exam:
    """What one version of one function answered."""

    version: int
    labels: np.ndarray
    escalated: np.ndarray | None
    """Which digits the expensive model answered; None where there is no choice."""
    accuracy: float
    """Percent."""
    p50_ms: float
    """What half of the callers waited at most."""
    model_us: float
    """Mean time inside the models for one digit, by the platform's own counters."""
    expensive: int
    """Digits that the expensive model ran, by the platform's own counters."""

    @property
    def escalations(self) -> int:
        """How many digits the expensive model answered, by what the function says; 0 where there is no choice."""
        return 0 if self.escalated is None else int(self.escalated.sum())

    @property
    def escalation(self) -> float | None:
        """Percent; None where there is no choice."""
        return None if self.escalated is None else 100 * float(self.escalated.mean())

    def agrees(self, other: Exam) -> bool:
        """Whether both gave every digit the same answer, by the same model."""
        return np.array_equal(self.labels, other.labels) and np.array_equal(self.escalated, other.escalated)  # type: ignore[arg-type]


def examine(client: Client, held_out: Digits, name: str, version: str = "") -> Exam:
    """All digits, one after another. Raises CallFailed."""
    before = client.counters()
    answers = [client.infer(name, {"pixels": row[None]}, version) for row in held_out.pixels]
    after = client.counters()
    (answered,) = {answer.version for answer in answers}
    labels = np.array([answer.outputs["label"].item() for answer in answers])
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    return Exam(
        version=answered,
        labels=labels,
        escalated=np.array([answer.outputs["escalated"].item() for answer in answers]) if "escalated" in answers[0].outputs else None,
        accuracy=100 * float((labels == held_out.labels).mean()),
        p50_ms=1000 * statistics.median(answer.seconds for answer in answers),
        model_us=sum(grown.get((COMPUTE, model), 0.0) for model in (CHEAP, EXPENSIVE)) / len(answers),
        expensive=round(grown.get((ROWS, EXPENSIVE), 0.0)),
    )


def table(exams: Mapping[str, Exam]) -> Table:
    """One line an exam."""
    drawn = Table("", "right", "escalated", "model time", "call p50", box=None, padding=(0, 2))
    for name, exam in exams.items():
        escalated = "" if exam.escalation is None else f"{exam.escalation:.1f} %"
        drawn.add_row(name, f"{exam.accuracy:.1f} %", escalated, f"{exam.model_us:.0f} µs", f"{exam.p50_ms:.2f} ms")
    return drawn
