"""Tags move under load: nothing fails, no answer mixes versions, and a move is visible at once.

The pipeline is an ensemble of ``step`` and ``child``, a BLS function that calls ``leaf``; each answers the number of its
generation. One pointer, the pipeline's own tag, moves the whole graph, so the three numbers of an answer always agree. The
control resolves each hop by its own tag, as a plain model repository does, while a release moves all of them.
"""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.flows import bundles as make
from tests.flows.load import Load
from tests.flows.platform import Platform

FLIPS = 200
BODY = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}


@pytest.fixture(scope="module")
def generations(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> dict[int, int]:
    """Generation → version of the pipeline that locks it."""
    found = {}
    for generation in (1, 2):
        root = tmp_path_factory.mktemp(f"generation{generation}")
        made = [
            make.constant(root, "leaf", generation),
            make.constant(root, "step", generation),
            make.caller(root, "child", "leaf", generation),
        ]
        if generation == 1:
            for bundle in [*made, make.pipeline(root)]:
                platform.upload(bundle).expect(201)
        else:
            moves = {}
            overlay = ""
            for bundle in made:
                query = {"promote": "false", **({"with": overlay} if bundle.name == "child" else {})}
                moves[bundle.name] = platform.upload(bundle, **query).expect(201).json["version"]
                overlay = f"leaf@{moves['leaf']}"
            platform.request("POST", "/v1/releases", {"moves": moves, "tag": "live", "dependents": "require", "wait": 60}).expect(200)
        numbers = _numbers(json.loads(platform.request("POST", "/v2/models/pipeline/infer", BODY).expect(200).body))

        assert (generation, generation, generation) == numbers

        found[generation] = int(platform.request("POST", "/v2/models/pipeline/infer", BODY).headers["despina-version"])
    return found


def test_two_hundred_flips_under_load_mix_nothing_and_fail_nothing(platform: Platform, generations: dict[int, int]) -> None:
    visible: list[float] = []
    probe = platform.connection()
    with Load(platform, 8, "/v2/models/pipeline/infer", BODY) as load:
        for flip in range(FLIPS):
            version = generations[1 + flip % 2]
            start = time.perf_counter()
            platform.request("PUT", "/v1/functions/pipeline/tags/live", {"version": version}).expect(200)
            while True:
                probe.request("POST", "/v2/models/pipeline/infer", json.dumps(BODY), {"Content-Type": "application/json"})
                answer = probe.getresponse()
                answer.read()
                if int(answer.getheader("Despina-Version") or 0) == version:
                    break
                assert time.perf_counter() - start < 10
            visible.append(time.perf_counter() - start)
    probe.close()
    by_version = {version: generation for generation, version in generations.items()}
    mixed = [
        answer.body
        for answer in load.seen.answers
        if answer.status == 200 and set(_numbers(answer.json)) != {by_version[int(answer.headers["despina-version"])]}
    ]
    p99_ms = sorted(visible)[int(0.99 * FLIPS) - 1] * 1000
    print(
        f"\n{FLIPS} flips, {len(load.seen.answers)} answers, visible p50 {sorted(visible)[FLIPS // 2] * 1000:.1f} ms, p99 {p99_ms:.1f} ms"
    )

    assert load.seen.errors == []
    assert load.seen.failed == []
    assert mixed == []
    assert len(load.seen.answers) > FLIPS
    assert p99_ms <= 100


def test_resolving_each_hop_by_tag_mixes_generations(platform: Platform, generations: dict[int, int]) -> None:
    """The control: without it, the test above could be blind."""
    assert generations
    stop = threading.Event()
    pairs: list[tuple[int, int]] = []

    def chain() -> None:
        while not stop.is_set():
            step = platform.request("POST", "/v2/models/step/infer", BODY).expect(200).json["outputs"][0]["data"][0]
            leaf = platform.request("POST", "/v2/models/leaf/infer", BODY).expect(200).json["outputs"][0]["data"][0]
            pairs.append((step, leaf))

    threads = [threading.Thread(target=chain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for flip in range(60):
        for name in ("step", "leaf"):
            platform.request("PUT", f"/v1/functions/{name}/tags/live?dependents=keep", {"version": 1 + flip % 2}).expect(200)
    stop.set()
    for thread in threads:
        thread.join(60)

    assert any(step != leaf for step, leaf in pairs), f"{len(pairs)} chains, none mixed"


def _numbers(body: dict[str, list[dict[str, list[int]]]]) -> tuple[int, ...]:
    found = {str(output["name"]): output["data"][0] for output in body["outputs"]}
    return found["STEP"], found["OWN"], found["LEAF"]


def test_a_rollback_of_the_whole_graph_is_one_write(platform: Platform, generations: dict[int, int]) -> None:
    platform.request("PUT", "/v1/functions/pipeline/tags/live", {"version": generations[2]}).expect(200)
    rolled = platform.request("POST", "/v1/functions/pipeline/rollback", {"to": generations[1]}).expect(200).json
    answer = platform.request("POST", "/v2/models/pipeline/infer", BODY).expect(200)

    assert _numbers(answer.json) == (1, 1, 1)
    assert rolled
    tag = platform.request("GET", "/v1/functions/pipeline").expect(200).json["tags"]["live"]

    assert tag["held"] is True
