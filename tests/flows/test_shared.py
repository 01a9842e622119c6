"""A ``shared`` callee has replicas of its own and is still the version that the lock names; ``limits.rate`` holds at the door."""

from __future__ import annotations

from pathlib import Path

from tests.flows import bundles as make
from tests.flows.platform import Platform

X = {"X": ("INT32", [1, 1], [0])}


def _numbers(platform: Platform, name: str) -> dict[str, int]:
    return {output["name"]: output["data"][0] for output in platform.infer(name, X).expect(200).json["outputs"]}


def test_a_shared_callee_runs_in_replicas_of_its_own_at_the_locked_version(platform: Platform, bundles: Path) -> None:
    platform.upload(make.constant(bundles, "leaf", 1)).expect(201)
    asks = make.caller(bundles, "asks", "leaf", 5)
    (asks / "function.toml").write_text("[calls]\nleaf = { shared = true }\n")
    platform.upload(asks).expect(201)

    assert _numbers(platform, "asks") == {"OWN": 5, "LEAF": 1}
    assert any(replica["state"] in ("ready", "busy") for replica in platform.replicas("leaf"))

    platform.upload(make.constant(bundles, "leaf", 2), dependents="keep").expect(201)

    assert _numbers(platform, "asks") == {"OWN": 5, "LEAF": 1}, "the lock still names the first"

    platform.upload(make.constant(bundles, "leaf", 3)).expect(201)

    assert _numbers(platform, "asks") == {"OWN": 5, "LEAF": 3}


def test_an_error_of_a_shared_callee_reaches_its_caller_as_an_error_object(platform: Platform, bundles: Path) -> None:
    config = """
    max_batch_size: 4
    input [{ name: "X", data_type: TYPE_INT32, dims: [1] }]
    output [{ name: "Y", data_type: TYPE_INT32, dims: [1] }]
    """
    code = "class TritonPythonModel:\n    def execute(self, requests):\n        raise ValueError('no weights')\n"
    platform.upload(make.python(bundles, "sore", config, code)).expect(201)
    asks = make.caller(bundles, "hopes", "sore", 5)
    (asks / "function.toml").write_text("[calls]\nsore = { shared = true }\n")
    platform.upload(asks).expect(201)
    answer = platform.infer("hopes", X)

    assert answer.status == 500
    assert "no weights" in answer.json["error"]


def test_an_ensembles_step_may_be_shared(platform: Platform, bundles: Path) -> None:
    for bundle in (make.constant(bundles, "leaf", 1), make.constant(bundles, "step", 1), make.caller(bundles, "child", "leaf", 1)):
        platform.upload(bundle).expect(200, 201)
    graph = make.pipeline(bundles)
    (graph / "function.toml").write_text("[calls]\nstep = { shared = true }\n")
    platform.upload(graph).expect(201)

    assert _numbers(platform, "pipeline") == {"STEP": 1, "OWN": 1, "LEAF": 1}
    assert any(replica["state"] in ("ready", "busy") for replica in platform.replicas("step"))


def test_more_calls_than_the_rate_are_told_to_wait(platform: Platform, bundles: Path) -> None:
    bundle = make.constant(bundles, "slowly", 1)
    (bundle / "function.toml").write_text("[limits]\nrate = 0.01\n")
    platform.upload(bundle).expect(201)
    platform.infer("slowly", X).expect(200)
    refused = platform.infer("slowly", X).expect(429)

    assert refused.headers["despina-error"] == "rate_limited"
    assert int(refused.headers["retry-after"]) >= 1
    assert "0.01 calls a second" in refused.json["error"]
