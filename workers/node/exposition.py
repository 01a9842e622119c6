"""Metrics as text, in Prometheus' format 0.0.4, under exactly the names they have.

prometheus_client's own writer adds ``_total`` to every counter; Triton's counters do not end so, and dashboards look for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; charset=utf-8"
"""As Triton sends it."""


def render(metrics: Iterable[Metric]) -> bytes:
    """Each family with its HELP and TYPE lines, those without series too; labels sorted by name."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.documentation)}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        lines.extend(_line(sample) for sample in metric.samples if not sample.name.endswith("_created"))
    return ("\n".join(lines) + "\n").encode()


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}} {number(sample.value)}" if labels else f"{sample.name} {number(sample.value)}"


def number(value: float) -> str:
    """``3``, ``0.25``, ``+Inf``: whole numbers without a point, as Triton prints them."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
