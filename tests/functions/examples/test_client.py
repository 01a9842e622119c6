from __future__ import annotations

import json

import httpx
import numpy as np
import pytest

from functions.examples import client
from functions.examples.client import HEADER_LENGTH, CallFailed, Client

TENSORS = {
    "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
    "flags": np.array([[True], [False]]),
    "texts": np.array([["a", b"\xff\x00"]], dtype=object),
    "nothing": np.zeros((0, 4), np.int64),
}


def test_what_is_encoded_is_decoded() -> None:
    header, raw = client.encode(TENSORS)
    body = json.loads(header)
    answer = json.dumps({"outputs": body["inputs"]}).encode()
    outputs = client.decode(b"".join([answer, *raw]), len(answer))

    assert body["parameters"] == {"binary_data_output": True}
    assert [entry["datatype"] for entry in body["inputs"]] == ["FP32", "BOOL", "BYTES", "INT64"]
    for name in ("numbers", "flags", "nothing"):
        np.testing.assert_array_equal(TENSORS[name], outputs[name])
    assert outputs["texts"].tolist() == [[b"a", b"\xff\x00"]]


def test_a_call_names_its_version_and_tells_which_one_answered() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        header, _, raw = request.content.partition(b"}]")[0], None, b"\x00\x00\x80\x3f"
        assert header.startswith(b'{"inputs"')
        assert int(request.headers[HEADER_LENGTH]) == len(request.content) - 4
        assert request.url.path == "/v2/models/f/versions/canary/infer"
        reply = json.dumps({"outputs": [{"name": "Y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}).encode()
        return httpx.Response(200, content=reply + raw, headers={HEADER_LENGTH: str(len(reply)), "Despina-Version": "3"})

    with served(serve) as caller:
        answer = caller.infer("f", {"X": np.ones(1, np.float32)}, version="canary")

    assert (answer.outputs["Y"].tolist(), answer.version) == ([1.0], 3)


def test_an_error_has_the_status_the_code_and_the_message() -> None:
    def serve(_: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"error": "no such function"}, headers={"Despina-Error": "not_found"})

    with served(serve) as caller, pytest.raises(CallFailed, match=r"GET /v1/functions/f: 404 \(not_found\) .*no such function"):
        caller.get("/v1/functions/f")


def test_counters_are_summed_over_versions() -> None:
    text = "\n".join(
        [
            "# TYPE nv_inference_count counter",
            'nv_inference_count{model="f",version="1"} 2',
            'nv_inference_count{model="f",version="2"} 3',
            'nv_inference_count{model="g",version="1"} 7',
            "# TYPE despina_up gauge",
            "despina_up 1",
            "",
        ]
    )
    with served(lambda _: httpx.Response(200, text=text)) as caller:
        assert caller.counters() == {("nv_inference_count", "f"): 5.0, ("nv_inference_count", "g"): 7.0}


def served(answer: object) -> Client:
    """A client whose connection is a function."""
    made = Client("http://platform", "http://platform/metrics")
    made._http = httpx.Client(base_url="http://platform", transport=httpx.MockTransport(answer))
    return made
