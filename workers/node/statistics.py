"""Triton's ``model_stats``, made of the same series as the metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workers.node.pages import LATEST
from workers.process.page import Sample

_TIMES = {
    "queue": "nv_inference_queue_duration_us",
    "compute_input": "nv_inference_compute_input_duration_us",
    "compute_infer": "nv_inference_compute_infer_duration_us",
    "compute_output": "nv_inference_compute_output_duration_us",
}
_BATCH_TIMES = {
    "compute_input": "despina_batch_input_us_total",
    "compute_infer": "despina_batch_infer_us_total",
    "compute_output": "despina_batch_output_us_total",
}


def model_stats(samples: Iterable[Sample], name: str | None = None, version: int | None = None) -> list[dict[str, Any]]:
    """An entry for each version that counts something, sorted by name and version; only those of ``name`` (and ``version``)."""
    versions: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        labels = sample.labels
        if "model" in labels and labels.get("version", "").isdigit():
            key = labels["model"], int(labels["version"])
            if name in (None, key[0]) and version in (None, key[1]):
                versions.setdefault(key, []).append(sample)
    return [_entry(*key, of_version) for key, of_version in sorted(versions.items())]


def nothing_yet(name: str, version: int) -> dict[str, Any]:
    """The entry of a version that has not run on any node."""
    return _entry(name, version, ())


def merged(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of several nodes, added up per version."""
    sums: dict[tuple[str, int], dict[str, Any]] = {}
    for entry in entries:
        key = entry["name"], int(entry["version"])
        sums[key] = _added(sums[key], entry) if key in sums else dict(entry)
    return [entry for _, entry in sorted(sums.items())]


def _entry(name: str, version: int, samples: Iterable[Sample]) -> dict[str, Any]:
    values: dict[str, float] = {}
    batches: dict[int, dict[str, float]] = {}
    for sample in samples:
        size = sample.labels.get("size", "")
        if size.isdigit():
            batches.setdefault(int(size), {})[sample.family] = sample.value
        elif sample.family in LATEST:
            values[sample.family] = max(values.get(sample.family, 0.0), sample.value)
        else:  # the reasons of a failure add up
            values[sample.family] = values.get(sample.family, 0.0) + sample.value
    success = values.get("nv_inference_request_success", 0.0)
    return {
        "name": name,
        "version": str(version),
        "last_inference": int(values.get("despina_last_inference_ms", 0.0)),
        "inference_count": int(values.get("nv_inference_count", 0.0)),
        "execution_count": int(values.get("nv_inference_exec_count", 0.0)),
        "inference_stats": {
            "success": _duration(success, values.get("nv_inference_request_duration_us", 0.0)),
            "fail": _duration(values.get("nv_inference_request_failure", 0.0), values.get("despina_failure_duration_us", 0.0)),
            **{field: _duration(success, values.get(family, 0.0)) for field, family in _TIMES.items()},
            "cache_hit": _duration(0.0, 0.0),
            "cache_miss": _duration(0.0, 0.0),
        },
        "response_stats": {},
        "batch_stats": [_batch(size, batches[size]) for size in sorted(batches)],
        "memory_usage": [],
    }


def _batch(size: int, values: Mapping[str, float]) -> dict[str, Any]:
    count = values.get("despina_batches_total", 0.0)
    return {"batch_size": size, **{field: _duration(count, values.get(family, 0.0)) for field, family in _BATCH_TIMES.items()}}


def _duration(count: float, microseconds: float) -> dict[str, int]:
    return {"count": int(count), "ns": int(microseconds * 1000)}


def _added(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    stats = left["inference_stats"], right["inference_stats"]
    return {
        **left,
        "last_inference": max(left["last_inference"], right["last_inference"]),
        "inference_count": left["inference_count"] + right["inference_count"],
        "execution_count": left["execution_count"] + right["execution_count"],
        "inference_stats": {field: _sum(stats[0][field], stats[1][field]) for field in stats[0]},
        "batch_stats": _batches(left["batch_stats"], right["batch_stats"]),
        "memory_usage": [*left["memory_usage"], *right["memory_usage"]],
    }


def _batches(left: Iterable[Mapping[str, Any]], right: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    sizes = {batch["batch_size"]: dict(batch) for batch in left}
    for batch in right:
        size = batch["batch_size"]
        known = sizes.get(size)
        sizes[size] = {"batch_size": size, **{field: _sum(known[field], batch[field]) for field in _BATCH_TIMES}} if known else dict(batch)
    return [sizes[size] for size in sorted(sizes)]


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {"count": left["count"] + right["count"], "ns": left["ns"] + right["ns"]}
