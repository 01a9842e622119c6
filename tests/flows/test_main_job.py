"""The main job: upload a bundle, invoke it, publish a new version, roll back by tag; and all of it is still there after a restart."""

from __future__ import annotations

from pathlib import Path

from tests.flows import bundles as make
from tests.flows.platform import Platform, running

X = {"X": ("INT32", [1, 1], [0])}


def test_a_function_is_uploaded_called_renewed_and_rolled_back(platform: Platform, bundles: Path) -> None:
    first = platform.upload(make.constant(bundles, "f", 1)).expect(201).json

    assert (first["name"], first["version"], first["promotion"]["state"]) == ("f", 1, "moved")

    answer = platform.infer("f", X).expect(200)

    assert answer.json["outputs"][0]["data"] == [1]
    assert answer.headers["despina-version"] == "1"
    assert answer.headers["despina-digest"] == first["digest"]

    second = platform.upload(make.constant(bundles, "f", 2)).expect(201).json

    assert second["version"] == 2
    assert platform.infer("f", X).json["outputs"][0]["data"] == [2]
    assert platform.request("POST", "/v2/models/f/versions/1/infer", _body()).expect(200).json["outputs"][0]["data"] == [1]
    assert platform.request("POST", "/v2/models/f/versions/live/infer", _body()).expect(200).json["outputs"][0]["data"] == [2]

    platform.request("POST", "/v1/functions/f/rollback", {}).expect(200)

    assert platform.infer("f", X).json["outputs"][0]["data"] == [1]

    history = platform.request("GET", "/v1/functions/f/history").expect(200).json
    moves = history["history"] if isinstance(history, dict) else history

    live = sorted((move for move in moves if move["tag"] == "live"), key=lambda move: move["epoch"])

    assert [move["targets"][0]["version"] for move in live] == [1, 2, 1]


def test_the_same_content_is_the_same_version(platform: Platform, bundles: Path) -> None:
    bundle = make.constant(bundles, "same", 5)
    first = platform.upload(bundle).expect(201).json
    again = platform.upload(bundle).expect(200).json

    assert (first["version"], first["digest"]) == (again["version"], again["digest"])


def test_a_tag_moves_by_compare_and_swap(platform: Platform, bundles: Path) -> None:
    platform.upload(make.constant(bundles, "cas", 1)).expect(201)
    platform.upload(make.constant(bundles, "cas", 2)).expect(201)
    moved = platform.request("PUT", "/v1/functions/cas/tags/canary", {"version": 1}).expect(200, 201)
    etag = moved.headers["etag"]
    platform.request("PUT", "/v1/functions/cas/tags/canary", {"version": 2}, {"If-Match": etag}).expect(200)
    stale = platform.request("PUT", "/v1/functions/cas/tags/canary", {"version": 1}, {"If-Match": etag})

    assert (stale.status, stale.headers["despina-error"]) == (412, "precondition_failed")

    # A digit to Python, and not one of ours: it was answered 500.
    odd = platform.request("PUT", "/v1/functions/cas/tags/canary", {"version": 1}, {"If-Match": "\xb2"})

    assert (odd.status, odd.headers["despina-error"]) == (400, "invalid_request")
    assert platform.request("POST", "/v2/models/cas/versions/canary/infer", _body()).expect(200).json["outputs"][0]["data"] == [2]


def test_a_version_in_use_is_not_deleted(platform: Platform, bundles: Path) -> None:
    platform.upload(make.constant(bundles, "kept", 1)).expect(201)
    platform.upload(make.constant(bundles, "kept", 2)).expect(201)

    refused = platform.request("DELETE", "/v1/functions/kept/versions/2")

    assert (refused.status, refused.headers["despina-error"]) == (409, "conflict")

    platform.request("DELETE", "/v1/functions/kept/versions/1").expect(200, 204)

    assert platform.request("GET", "/v1/functions/kept/versions/1").status == 404
    assert platform.upload(make.constant(bundles, "kept", 1)).expect(201).json["version"] == 3


def test_a_release_moves_dependents_and_a_rollback_of_the_callee_moves_them_back(platform: Platform, bundles: Path) -> None:
    for bundle in (
        make.constant(bundles, "leaf", 1),
        make.constant(bundles, "step", 1),
        make.caller(bundles, "child", "leaf", 1),
        make.pipeline(bundles),
    ):
        platform.upload(bundle).expect(201)

    assert _numbers(platform) == (1, 1, 1)

    promoted = platform.upload(make.constant(bundles, "leaf", 2)).expect(201).json

    assert _numbers(platform) == (1, 1, 2)
    assert {"child", "pipeline"} == {dependent["name"] for dependent in promoted["promotion"]["dependents"]}

    before = platform.request("GET", "/v1/functions/pipeline").expect(200).json
    platform.request("POST", "/v1/functions/leaf/rollback", {}).expect(200)
    after = platform.request("GET", "/v1/functions/pipeline").expect(200).json

    assert _numbers(platform) == (1, 1, 1)
    assert [version["version"] for version in before["versions"]] == [version["version"] for version in after["versions"]], "no new number"


def test_a_version_whose_start_fails_does_not_go_live(platform: Platform, bundles: Path) -> None:
    platform.upload(make.constant(bundles, "fragile", 1)).expect(201)
    broken = make.python(
        bundles,
        "fragile",
        """
        max_batch_size: 16
        input [{ name: "X", data_type: TYPE_INT32, dims: [1] }]
        output [{ name: "Y", data_type: TYPE_INT32, dims: [1] }]
        """,
        """
        class TritonPythonModel:
            def initialize(self, args):
                raise ValueError("weights are missing")

            def execute(self, requests):
                return []
        """,
    )
    uploaded = platform.upload(broken).expect(201).json

    assert uploaded["promotion"]["state"] != "moved"
    assert "weights are missing" in uploaded["promotion"]["reason"]
    assert platform.infer("fragile", X).json["outputs"][0]["data"] == [1]


def test_everything_is_still_there_after_a_restart(tmp_path: Path, bundles: Path) -> None:
    with running(tmp_path / "data") as platform:
        platform.upload(make.constant(bundles, "f", 1)).expect(201)
        platform.upload(make.constant(bundles, "f", 2)).expect(201)
        platform.request("POST", "/v1/functions/f/rollback", {"to": 1}).expect(200)

    with running(tmp_path / "data") as platform:
        assert platform.infer("f", X).expect(200).json["outputs"][0]["data"] == [1]
        assert platform.request("GET", "/v2/models/f").expect(200).json["versions"]


def _numbers(platform: Platform) -> tuple[int, int, int]:
    outputs = platform.infer("pipeline", X).expect(200).json["outputs"]
    found = {output["name"]: output["data"][0] for output in outputs}
    return found["STEP"], found["OWN"], found["LEAF"]


def _body() -> dict[str, object]:
    return {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}
