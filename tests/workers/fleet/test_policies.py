from __future__ import annotations

from typing import Any

import pytest

from functions.manifest import Manifest
from functions.records import VersionRecord
from workers.fleet.decide import Policy
from workers.fleet.policies import policy
from workers.fleet.terms import Terms


def record(batch: int, instances: int, **scale: Any) -> VersionRecord:
    return VersionRecord(
        name="f",
        version=1,
        digest="",
        content="",
        files={},
        config={
            "name": "f",
            "backend": "python",
            "max_batch_size": batch,
            "input": [],
            "output": [],
            "instance_group": [{"name": "f_0", "kind": "KIND_CPU", "count": instances}],
        },
        manifest=Manifest.model_validate({"scale": scale}).to_json(),
        author_dir="1",
    )


@pytest.mark.parametrize(
    ("made", "override", "expected"),
    [
        (record(0, 1), {}, Policy(0, 8, 1.0, 60.0)),
        (record(16, 2), {}, Policy(0, 4, 32.0, 60.0)),
        (record(0, 9), {}, Policy(0, 1, 9.0, 60.0)),
        (record(0, 1, min=2, max=5, target=3.0, idle_s=10.0), {}, Policy(2, 5, 3.0, 10.0)),
        (record(0, 1, min=2, max=5), {"max": 1, "idle_s": 0.0}, Policy(1, 1, 1.0, 0.0)),
        (record(0, 1), {"min": 12}, Policy(12, 12, 1.0, 60.0)),
    ],
)
def test_the_manifest_the_override_and_the_cores_make_the_policy(made: VersionRecord, override: dict[str, Any], expected: Policy) -> None:
    assert expected == policy([made], override, cores=8)


def test_terms_come_from_the_manifest_and_the_override() -> None:
    manifest = Manifest.model_validate({"limits": {"queue": 7}, "scale": {"idle_s": 9.0}, "retry": {"idempotent": True}}).to_json()

    assert Terms(queue=7, idle_s=9.0, idempotent=True) == Terms.of(manifest, {})
    assert Terms(queue=7, idle_s=1.0, idempotent=True) == Terms.of(manifest, {"idle_s": 1.0})
    assert Terms() == Terms.of(Manifest().to_json(), {})
