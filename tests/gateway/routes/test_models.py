from __future__ import annotations

import pytest

from functions.names import Ref
from tests.gateway.interface import Interface, bundle


@pytest.fixture
async def f(interface: Interface) -> Interface:
    for marker in "12":
        await interface.upload("f", bundle(marker))
    await interface.http.put("/v1/functions/f/tags/old", json={"version": 1})
    return interface


async def test_metadata_says_versions_types_and_full_shapes(f: Interface) -> None:
    expected = {
        "name": "f",
        "versions": ["1", "2"],
        "platform": "python",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "Y", "datatype": "BYTES", "shape": [-1, 1]}],
    }

    assert expected == (await f.http.get("/v2/models/f")).json()
    assert ["1"] == (await f.http.get("/v2/models/f/versions/1")).json()["versions"]
    assert ["1"] == (await f.http.get("/v2/models/f/versions/old")).json()["versions"]


async def test_the_configuration_is_the_normalised_one(f: Interface) -> None:
    config = (await f.http.get("/v2/models/f/config")).json()

    assert ("f", "python", 4) == (config["name"], config["backend"], config["max_batch_size"])


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v2/models/nope", 404, "Request for unknown model: 'nope' is not found"),
        ("/v2/models/nope/config", 404, "Request for unknown model: 'nope' is not found"),
        ("/v2/models/f/versions/9", 404, "Request for unknown model: 'f' version 9 is not found"),
        ("/v2/models/nope/ready", 400, "Model version not ready"),
        ("/v2/models/nope/stats", 400, "requested model 'nope' is not available"),
        ("/v2/models/f/versions/9/stats", 400, "requested model version is not available for model 'f'"),
        ("/v2/models/f/", 404, "Not Found"),
        ("/v2/nowhere", 404, "Not Found"),
    ],
)
async def test_what_is_not_there_is_told_in_tritons_words(f: Interface, path: str, status: int, text: str) -> None:
    response = await f.http.get(path)

    assert (status, {"error": text}) == (response.status_code, response.json())


async def test_another_method_is_405(f: Interface) -> None:
    for method, path in (("POST", "/v2"), ("PUT", "/v2/models/f"), ("DELETE", "/v1/functions")):
        response = await f.http.request(method, path)

        assert (405, {"error": "Method Not Allowed"}) == (response.status_code, response.json())


async def test_a_version_at_zero_is_ready_and_one_that_cannot_start_is_not(f: Interface) -> None:
    assert 200 == (await f.http.get("/v2/models/f/ready")).status_code

    f.nodes.broken.add(Ref("f", 2))

    assert 400 == (await f.http.get("/v2/models/f/ready")).status_code
    assert 200 == (await f.http.get("/v2/models/f/versions/1/ready")).status_code


async def test_statistics_of_a_version_that_never_ran_are_zeros(f: Interface) -> None:
    (entry,) = (await f.http.get("/v2/models/f/stats")).json()["model_stats"]

    assert ("f", "2", 0, 0) == (entry["name"], entry["version"], entry["inference_count"], entry["inference_stats"]["success"]["count"])
    assert {"model_stats": []} == (await f.http.get("/v2/models/stats")).json()


async def test_a_server_lives_and_is_ready_while_a_node_answers_and_it_does_not_drain(interface: Interface) -> None:
    async def status(path: str) -> int:
        response = await interface.http.get(path)

        assert b"" == response.content
        return response.status_code

    assert [200, 200] == [await status("/v2/health/live"), await status("/v2/health/ready")]

    interface.nodes.connected = 0

    assert [200, 400] == [await status("/v2/health/live"), await status("/v2/health/ready")]

    interface.nodes.connected, interface.parts.draining = 1, True

    assert 400 == await status("/v2/health/ready")
    assert {"name", "version", "extensions"} == (await interface.http.get("/v2")).json().keys()


async def test_functions_are_listed_and_their_logs_shown(f: Interface) -> None:
    expected = {"name": "f", "versions": 2, "tags": {"live": 2, "old": 1}, "held": False, "replicas": 0}

    assert [expected] == (await f.http.get("/v1/functions")).json()["functions"]
    assert {"name": "f", "version": 1, "lines": ["f@1 says hello"]} == (await f.http.get("/v1/functions/f/logs?version=old")).json()
    assert 404 == (await f.http.get("/v1/functions/g/replicas")).status_code
    assert 400 == (await f.http.get("/v1/functions/f/logs?lines=0")).status_code
