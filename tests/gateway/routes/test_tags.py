from __future__ import annotations

import pytest

from functions.names import Ref
from tests.gateway.interface import Interface, bundle

LIVE = "/v1/functions/f/tags/live"


@pytest.fixture
async def two(interface: Interface) -> Interface:
    """``f`` with versions 1 and 2, ``live`` at 2."""
    for marker in "12":
        await interface.upload("f", bundle(marker))
    return interface


async def test_a_tag_moves_by_compare_and_swap(two: Interface) -> None:
    shown = await two.http.get(LIVE)

    assert (2, '"2"') == (shown.json()["version"], shown.headers["etag"])

    moved = await two.http.put(LIVE, json={"version": 1}, headers={"If-Match": '"2"'})

    assert (200, 1, '"3"') == (moved.status_code, moved.json()["version"], moved.headers["etag"])

    stale = await two.http.put(LIVE, json={"version": 2}, headers={"If-Match": '"2"'})

    assert (412, "precondition_failed") == (stale.status_code, stale.headers["despina-error"])
    assert 1 == (await two.http.get(LIVE)).json()["version"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (LIVE, {"If-None-Match": "*"}, 412),
        (LIVE, {"If-Match": "*"}, 200),
        ("/v1/functions/f/tags/new", {"If-None-Match": "*"}, 200),
        ("/v1/functions/f/tags/new", {"If-Match": "*"}, 412),
        (LIVE, {"If-Match": "W/x"}, 400),
        (LIVE, {"If-None-Match": '"2"'}, 400),
        (LIVE, {"If-None-Match": "*", "If-Match": '"2"'}, 400),
    ],
)
async def test_preconditions_mean_what_http_says(two: Interface, path: str, headers: dict[str, str], status: int) -> None:
    response = await two.http.put(path, json={"version": 1}, headers=headers)

    assert status == response.status_code, response.text


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (LIVE, {"version": 9}, 404),
        (LIVE, {"version": 0}, 400),
        (LIVE, {"version": "1", "typo": 1}, 400),
        (LIVE, {}, 400),
        ("/v1/functions/g/tags/live", {"version": 1}, 404),
        ("/v1/functions/f/tags/1x", {"version": 1}, 400),
        (f"{LIVE}?typo=1", {"version": 1}, 400),
    ],
)
async def test_a_move_that_makes_no_sense_is_refused(two: Interface, path: str, body: dict[str, object], status: int) -> None:
    response = await two.http.put(path, json=body)

    assert (status, ["error"]) == (response.status_code, list(response.json())), response.text


@pytest.mark.parametrize("tag", ["live", "new"])
async def test_a_tag_does_not_move_to_what_cannot_start_and_says_why(two: Interface, tag: str) -> None:
    two.nodes.broken.add(Ref("f", 1))
    response = await two.http.put(f"/v1/functions/f/tags/{tag}", json={"version": 1})

    assert (503, "start_failed") == (response.status_code, response.headers["despina-error"])
    assert {"error": "weights are missing"} == response.json()
    assert 2 == (await two.http.get(LIVE)).json()["version"]


@pytest.mark.parametrize("body", [None, {}, {"to": 1}, {"to": "old"}])
async def test_a_rollback_goes_to_what_was_before_or_to_what_is_named_and_holds_it(two: Interface, body: dict[str, object] | None) -> None:
    await two.http.put("/v1/functions/f/tags/old", json={"version": 1})
    response = (
        await two.http.post("/v1/functions/f/rollback", json=body) if body is not None else await two.http.post("/v1/functions/f/rollback")
    )

    assert (200, 1, True, "rollback") == (response.status_code, *(response.json()[key] for key in ("version", "held", "reason")))
    assert [1, 2, 1] == [move["version"] for move in (await two.http.get("/v1/functions/f/history?tag=live")).json()["history"]]


async def test_one_release_moves_several_functions_under_one_id(two: Interface) -> None:
    await two.upload("g", bundle("1"), promote="false")
    response = await two.http.post("/v1/releases", json={"moves": {"f": 1, "g": 1}})
    said = response.json()
    moves = [(await two.http.get(f"/v1/functions/{name}/tags/live")).json() for name in ("f", "g")]

    assert 200 == response.status_code
    assert [(1, said["release"])] * 2 == [(move["version"], move["release"]) for move in moves]


async def test_a_release_of_which_one_cannot_start_moves_nothing(two: Interface) -> None:
    await two.upload("g", bundle("1"), promote="false")
    two.nodes.broken.add(Ref("g", 1))
    response = await two.http.post("/v1/releases", json={"moves": {"f": 1, "g": 1}})

    assert (503, 2) == (response.status_code, (await two.http.get(LIVE)).json()["version"])
    assert 404 == (await two.http.get("/v1/functions/g/tags/live")).status_code


@pytest.mark.parametrize(
    "body", [{}, {"moves": {}}, {"moves": {"f": "x"}}, {"moves": {"f": 1}, "typo": 1}, {"moves": {"f": 1}, "tag": "?"}]
)
async def test_a_release_that_makes_no_sense_is_refused(two: Interface, body: dict[str, object]) -> None:
    assert 400 == (await two.http.post("/v1/releases", json=body)).status_code


async def test_a_scale_overrides_until_it_is_deleted(two: Interface) -> None:
    path = "/v1/functions/f/scale"
    put = await two.http.put(path, json={"min": 1, "max": 4, "idle_s": 60})

    assert (200, {"min": 1, "max": 4, "idle_s": 60.0}) == (put.status_code, put.json())
    assert put.json() == (await two.http.get(path)).json()

    for wrong in ({"min": -1}, {"typo": 1}, {"min": 5, "max": 4}, {"snapshot": True}, {"min": "1"}):
        assert 400 == (await two.http.put(path, json=wrong)).status_code, wrong

    assert 200 == (await two.http.delete(path)).status_code
    assert {} == (await two.http.get(path)).json()
