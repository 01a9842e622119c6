"""A page as a replica leaves it after a few batches of version ``f@<version>``."""

from __future__ import annotations

from pathlib import Path

from workers.process import page
from workers.process.page import Page

VALUES = {
    "nv_inference_request_success": 3,
    "nv_inference_count": 5,
    "nv_inference_exec_count": 3,
    "nv_inference_request_duration_us": 33,
    "nv_inference_queue_duration_us": 15,
    "nv_inference_compute_input_duration_us": 3,
    "nv_inference_compute_infer_duration_us": 6,
    "nv_inference_compute_output_duration_us": 9,
    "despina_failure_duration_us": 18,
}
BATCHES = {
    "despina_batches_total": 1,
    "despina_batch_input_us_total": 1,
    "despina_batch_infer_us_total": 2,
    "despina_batch_output_us_total": 3,
}


def write(directory: Path, version: int, **tags: str) -> None:
    """Requests of 4 and 1 rows that succeeded, a batch of 3 that failed, by the page's families alone."""
    path = str(directory / f"replica-{version}")
    page.create(path)
    writer = Page(path)
    labels = {"model": "f", "version": str(version), **tags}
    for family, value in VALUES.items():
        writer.values[writer.series(family, labels)] = value
    for reason, count in {"REJECTED": 0, "CANCELED": 0, "BACKEND": 2, "OTHER": 1}.items():
        writer.values[writer.series("nv_inference_request_failure", {**labels, "reason": reason})] = count
    for size in ("4", "1"):
        for family, value in BATCHES.items():
            writer.values[writer.series(family, {**labels, "size": size})] = value
    writer.values[writer.series("despina_last_inference_ms", labels, "gauge")] = 1_700_000_000_000
