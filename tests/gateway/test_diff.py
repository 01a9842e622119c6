from __future__ import annotations

from typing import Any

from gateway.diff import Difference, differences


def record(**changes: Any) -> dict[str, Any]:
    usual = {
        "files": {"1/model.py": ["a" * 64, 10, False]},
        "config": {"max_batch_size": 8, "input": [{"name": "X", "dims": [2]}]},
        "manifest": {"limits": {"timeout_s": 300}},
        "lock": {"g": {"version": 1}},
        "environment": "",
    }
    return {**usual, **changes}


def test_equal_versions_do_not_differ() -> None:
    assert [] == differences(record(), record())


def test_each_part_is_compared_and_named() -> None:
    after = record(
        files={"1/model.py": ["b" * 64, 12, True], "labels.txt": ["c" * 64, 1, False]},
        config={"max_batch_size": 8, "input": [{"name": "X", "dims": [3]}]},
        manifest={"limits": {"timeout_s": 10}},
        lock={"g": {"version": 2}, "h": {"version": 1}},
        environment="e",
    )

    expected = [
        Difference("files", "1/model.py", f"{'a' * 12} 10 bytes", f"{'b' * 12} 12 bytes x"),
        Difference("files", "labels.txt", None, f"{'c' * 12} 1 bytes"),
        Difference("config", "input[0].dims[0]", 2, 3),
        Difference("manifest", "limits.timeout_s", 300, 10),
        Difference("lock", "g", 1, 2),
        Difference("lock", "h", None, 1),
        Difference("environment", "", "", "e"),
    ]

    assert expected == differences(record(), after)
