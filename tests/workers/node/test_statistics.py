"""``model_stats`` in Triton's shape, from what a replica's own counters write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.workers.node.counted import write
from workers.node.pages import Pages
from workers.node.statistics import merged, model_stats, nothing_yet

KEYS = [
    *("name", "version", "last_inference", "inference_count", "execution_count"),
    *("inference_stats", "response_stats", "batch_stats", "memory_usage"),
]
STATS = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]


def counted(tmp_path: Path, *versions: int) -> list[dict[str, Any]]:
    for version in versions:
        write(tmp_path, version)
    return model_stats(Pages(tmp_path).samples())


def test_an_entry_has_tritons_keys_in_tritons_order(tmp_path: Path) -> None:
    (entry,) = counted(tmp_path, 1)

    assert KEYS == list(entry)
    assert STATS == list(entry["inference_stats"])
    assert ["batch_size", "compute_input", "compute_infer", "compute_output"] == list(entry["batch_stats"][0])


def test_counts_follow_tritons_rules(tmp_path: Path) -> None:
    (entry,) = counted(tmp_path, 1)

    assert (5, 3) == (entry["inference_count"], entry["execution_count"])
    assert {"count": 3, "ns": 33_000} == entry["inference_stats"]["success"]
    assert {"count": 3, "ns": 18_000} == entry["inference_stats"]["fail"]
    assert {"count": 3, "ns": 15_000} == entry["inference_stats"]["queue"]
    assert {"count": 3, "ns": 6_000} == entry["inference_stats"]["compute_infer"]
    assert [(1, 1), (4, 1)] == [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in entry["batch_stats"]]
    assert 1_700_000_000_000 == entry["last_inference"]


def test_versions_are_chosen_by_name_and_number(tmp_path: Path) -> None:
    counted(tmp_path, 2, 10)
    samples = Pages(tmp_path).samples()

    assert ["2", "10"] == [entry["version"] for entry in model_stats(samples, "f")]
    assert ["10"] == [entry["version"] for entry in model_stats(samples, "f", 10)]
    assert [] == model_stats(samples, "g")


def test_the_entries_of_several_nodes_add_up(tmp_path: Path) -> None:
    (entry,) = counted(tmp_path, 1)
    later = {**entry, "last_inference": entry["last_inference"] + 5, "batch_stats": [{**entry["batch_stats"][0], "batch_size": 9}]}
    (both,) = merged([entry, later])

    assert (10, 6) == (both["inference_count"], both["execution_count"])
    assert {"count": 6, "ns": 66_000} == both["inference_stats"]["success"]
    assert later["last_inference"] == both["last_inference"]
    assert [1, 4, 9] == [batch["batch_size"] for batch in both["batch_stats"]]
    assert KEYS == list(both)


def test_a_version_that_never_ran_has_an_entry_of_zeros() -> None:
    entry = nothing_yet("f", 3)

    assert KEYS == list(entry)
    assert ("f", "3", 0, []) == (entry["name"], entry["version"], entry["inference_stats"]["success"]["count"], entry["batch_stats"])
    assert [entry] == merged([entry])
