from __future__ import annotations

from http import HTTPStatus

import pytest

from functions.errors import DespinaError, InternalError, NotFound, QueueFull, StartFailed, tree
from gateway import statuses


def test_every_code_of_the_tree_has_a_status_and_no_status_is_left_over() -> None:
    assert {kind.code for kind in tree()} == set(statuses.STATUS)


def test_every_status_is_an_error_that_http_has_a_phrase_for() -> None:
    assert all(HTTPStatus(status).phrase and 400 <= status < 600 for status in statuses.STATUS.values())


@pytest.mark.parametrize(
    ("triton", "code"),
    [
        (400, "model_unknown"),
        (500, "model_failed"),
        (404, "model_not_found"),
        (400, "model_invalid_argument"),
        (503, "model_unavailable"),
        (501, "model_unsupported"),
        (400, "model_already_exists"),
        (400, "model_cancelled"),
    ],
)
def test_a_models_own_codes_have_tritons_statuses(triton: int, code: str) -> None:
    assert triton == statuses.STATUS[code]


def test_what_the_caller_must_change_is_never_a_server_error() -> None:
    from functions.errors import CallerError, Unsupported

    assert all(statuses.STATUS[kind.code] < 500 for kind in tree(CallerError) if kind is not Unsupported)


def test_a_message_of_ours_is_kept_from_the_caller() -> None:
    assert b"/secret/path" not in statuses.body(InternalError("/secret/path is broken"))
    assert b'{"error": "no such thing"}' == statuses.body(NotFound("no such thing"))


def test_a_hint_to_retry_is_given_where_it_is_known() -> None:
    known = StartFailed("again later")
    known.retry_after_s = 2.1

    hints: list[tuple[int | None, DespinaError]] = [(3, known), (1, QueueFull("full")), (None, NotFound("no"))]

    for expected, error in hints:
        assert expected == statuses.retry_after_s(error)
