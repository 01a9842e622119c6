from __future__ import annotations

import hashlib
from typing import Any

import pytest
from fastapi.routing import APIRoute

from functions.names import Ref
from gateway.parts import may_change
from gateway.routes import blobs, functions, health, models, releases, scale, tags, versions
from tests.gateway.interface import Interface, bundle, zipped


async def test_an_upload_is_recorded_promoted_and_leaves_nothing_behind(interface: Interface) -> None:
    response = await interface.upload("f", bundle())
    said = response.json()

    assert 201 == response.status_code
    assert {"name", "version", "digest", "lock", "tags", "size_bytes", "warnings", "promotion"} == said.keys()
    assert ("f", 1, ["live"], {}) == (said["name"], said["version"], said["tags"], said["lock"])
    assert {"state", "reason", "dependents"} == said["promotion"].keys()
    assert [] == interface.left


async def test_the_same_content_is_the_same_version_and_answers_200(interface: Interface) -> None:
    await interface.upload("f", bundle())
    again = await interface.upload("f", bundle())

    assert (200, 1) == (again.status_code, again.json()["version"])


async def test_an_upload_need_not_be_promoted(interface: Interface) -> None:
    said = (await interface.upload("f", bundle(), promote="false")).json()

    assert ([], "skipped") == (said["tags"], said["promotion"]["state"])


async def test_a_version_that_cannot_start_is_recorded_and_does_not_go_live(interface: Interface) -> None:
    await interface.upload("f", bundle("1"))
    interface.nodes.broken.add(Ref("f", 2))
    response = await interface.upload("f", bundle("2"))
    said = response.json()

    assert (201, 2, [], "failed") == (response.status_code, said["version"], said["tags"], said["promotion"]["state"])
    assert "weights are missing" in said["promotion"]["reason"]
    assert 1 == (await interface.http.get("/v1/functions/f")).json()["tags"]["live"]["version"]


async def test_only_missing_blobs_travel_and_a_list_of_files_makes_the_same_version(interface: Interface) -> None:
    files = {path: content.encode() for path, content in bundle().items()}
    listed = {path: [hashlib.sha256(content).hexdigest(), len(content), False] for path, content in files.items()}
    wanted = {sha256: size for sha256, size, _ in listed.values()}
    missing = (await interface.http.post("/v1/blobs/missing", json=wanted)).json()["missing"]

    assert sorted(wanted) == missing

    for content in files.values():
        sha256 = hashlib.sha256(content).hexdigest()
        put = await interface.http.put(f"/v1/blobs/{sha256}", content=content, headers={"Content-Type": "application/octet-stream"})

        assert 201 == put.status_code

    assert [] == (await interface.http.post("/v1/blobs/missing", json=wanted)).json()["missing"]

    first = await interface.http.post("/v1/functions/f/versions", json={"files": listed})
    same = await interface.upload("f", bundle())

    assert [201, 200] == [first.status_code, same.status_code]
    assert first.json()["digest"] == same.json()["digest"]
    assert [] == interface.left


async def test_a_blob_of_other_bytes_than_its_name_says_is_refused(interface: Interface) -> None:
    put = await interface.http.put(f"/v1/blobs/{'0' * 64}", content=b"x", headers={"Content-Type": "application/octet-stream"})

    assert (400, "invalid_request") == (put.status_code, put.headers["despina-error"])
    assert [] == interface.left


async def test_versions_of_callees_that_the_same_release_moves_are_locked_ahead(interface: Interface) -> None:
    await interface.upload("g", bundle("1"))
    await interface.upload("g", bundle("2"), promote="false")
    said = (await interface.upload("f", bundle(toml="[calls]\ng = {}\n"), promote="false", **{"with": "g@2"})).json()

    assert 2 == said["lock"]["g"]["version"]


@pytest.mark.parametrize(
    ("query", "headers", "content", "status"),
    [
        ({"typo": "1"}, {}, None, 400),
        ({"tag": "not a tag"}, {}, None, 400),
        ({"dependents": "perhaps"}, {}, None, 400),
        ({"wait": "-1"}, {}, None, 400),
        ({"wait": "nan"}, {}, None, 400),
        ({"with": "g"}, {}, None, 400),
        ({"with": "g@1,g@2"}, {}, None, 400),
        ({}, {"Content-Type": "text/plain"}, None, 400),
        ({}, {"Origin": "http://elsewhere"}, None, 403),
        ({}, {"Host": "elsewhere"}, None, 403),
        ({}, {}, b"x" * ((1 << 20) + 1), 413),
        ({}, {}, b"no archive", 422),
        ({}, {"Content-Type": "application/json"}, b"{", 400),
        ({}, {"Content-Type": "application/json"}, b'{"files": {}}', 400),
        ({}, {"Content-Type": "application/json"}, b'{"files": {"../x": ["a", 1, false]}}', 422),
        ({}, {"Content-Type": "application/json"}, b'{"files": {"x": ["' + b"a" * 64 + b'", 1, false]}}', 400),
    ],
)
async def test_a_bad_upload_is_refused_and_leaves_nothing_behind(
    interface: Interface, query: dict[str, str], headers: dict[str, str], content: bytes | None, status: int
) -> None:
    body = zipped(bundle()) if content is None else content
    sent = {"Content-Type": "application/zip", **headers}
    response = await interface.http.post("/v1/functions/f/versions", params=query, content=body, headers=sent)

    assert status == response.status_code, response.text
    assert ["error"] == list(response.json())
    assert response.headers["despina-error"]
    assert [] == interface.left
    assert [] == interface.registry.catalog.functions()


async def test_an_upload_without_a_length_is_cut_at_the_limit(interface: Interface) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b"x" * 65536

    response = await interface.http.post("/v1/functions/f/versions", content=endless(), headers={"Content-Type": "application/zip"})

    assert (413, []) == (response.status_code, interface.left)


async def test_a_version_is_shown_whole_and_deleted_only_when_nothing_needs_it(interface: Interface) -> None:
    await interface.upload("f", bundle("1"))
    await interface.upload("f", bundle("2"))
    shown = (await interface.http.get("/v1/functions/f/versions/2")).json()

    assert (2, ["live"], 4) == (shown["version"], shown["tags"], shown["config"]["max_batch_size"])
    assert 409 == (await interface.http.delete("/v1/functions/f/versions/2")).status_code
    assert 200 == (await interface.http.delete("/v1/functions/f/versions/1")).status_code
    assert 404 == (await interface.http.get("/v1/functions/f/versions/1")).status_code
    assert 400 == (await interface.http.get("/v1/functions/f/versions/x")).status_code


async def test_a_token_guards_every_change_and_of_what_is_looked_at_only_logs(tmp_path: Any) -> None:
    guarded = Interface(tmp_path / "data", token="secret-token")
    changes = [
        ("POST", "/v1/functions/f/versions"),
        ("DELETE", "/v1/functions/f/versions/1"),
        ("PUT", "/v1/functions/f/tags/live"),
        ("POST", "/v1/functions/f/rollback"),
        ("PUT", "/v1/functions/f/scale"),
        ("DELETE", "/v1/functions/f/scale"),
        ("POST", "/v1/releases"),
        ("POST", "/v1/blobs/missing"),
        ("PUT", f"/v1/blobs/{'0' * 64}"),
        ("GET", "/v1/functions/f/logs"),
    ]
    for method, path in changes:
        response = await guarded.http.request(method, path, json={} if method in ("POST", "PUT") else None)

        assert (401, "unauthorized") == (response.status_code, response.headers["despina-error"]), path

    assert 200 == (await guarded.http.get("/v1/functions")).status_code

    allowed = await guarded.http.post("/v1/blobs/missing", json={}, headers={"Authorization": "Bearer secret-token"})

    assert 200 == allowed.status_code


async def test_every_changing_route_asks_for_admission_and_is_in_the_list_above() -> None:
    nouns = (health, models, functions, versions, tags, releases, scale, blobs)
    all_routes = [route for noun in nouns for route in noun.router.routes if isinstance(route, APIRoute)]
    routes = [route for route in all_routes if route.methods - {"GET", "HEAD"}]

    assert 9 == len(routes)
    assert all(may_change in [dependency.call for dependency in route.dependant.dependencies] for route in routes)
