from __future__ import annotations

import pytest

from functions.errors import Forbidden, InvalidRequest, NotFound, Unauthorized, Unsupported
from functions.names import Ref
from functions.records import TagRecord, Target, VersionRecord
from gateway.admit import Facts, Gate, NotRead
from tests.gateway.server import DIGEST, FakeVersions

NOW = 1000.0
PEER = ("10.0.0.1", 1234)


class Split(FakeVersions):
    """``live`` is split three to one between versions 2 and 1."""

    def resolve(self, name: str, selector: str | None = None) -> TagRecord | int:  # noqa: ARG002
        return TagRecord(name, "live", 1, (Target(2, 3.0), Target(1, 1.0)), "", "", "")


def gate(token: str | None = None, **options: object) -> Gate:
    return Gate(FakeVersions({"f": {"timeout_s": 5, "body_mb": 2}}), lambda: NOW, token=token, **options)  # type: ignore[arg-type]


def test_a_call_is_admitted_to_the_version_its_selector_means_now() -> None:
    for selector, version in ((None, 2), ("live", 2), ("canary", 1), ("1", 1)):
        admitted = gate().infer({}, "f", selector)

        assert Ref("f", version) == admitted.facts.ref
        assert (DIGEST, 5.0, 2 << 20) == (admitted.facts.digest, admitted.facts.timeout_s, admitted.facts.body_bytes)


@pytest.mark.parametrize(
    ("headers", "deadline"),
    [({}, NOW + 5), ({b"despina-timeout-us": b"1000000"}, NOW + 1), ({b"despina-timeout-us": b"9000000"}, NOW + 5)],
)
def test_the_deadline_is_the_sooner_of_the_functions_and_the_callers(headers: dict[bytes, bytes], deadline: float) -> None:
    assert deadline == gate().infer(headers, "f").deadline


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({b"despina-timeout-us": b"0"}, InvalidRequest),
        ({b"despina-timeout-us": b"1e3"}, InvalidRequest),
        ({b"despina-priority": b"1"}, Unsupported),
        ({b"despina-sequence": b"7"}, Unsupported),
    ],
)
def test_a_header_that_cannot_be_honoured_is_refused(headers: dict[bytes, bytes], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        gate().infer(headers, "f")


def test_calls_to_a_split_tag_go_by_its_weights() -> None:
    for point, version in ((0.0, 2), (0.7499, 2), (0.75, 1), (0.9999, 1)):
        split = Gate(Split({"f": {}}), lambda: NOW, choose=lambda point=point: point)

        assert Ref("f", version) == split.facts("f").ref


def test_a_version_that_was_not_read_yet_is_said_to_be_so_and_known_once_read() -> None:
    versions = FakeVersions({"f": {}})
    fresh = Gate(versions, lambda: NOW)
    with pytest.raises(NotRead) as missing:
        fresh.facts("f", "7")
    fresh.read(missing.value.ref)

    assert Ref("f", 7) == fresh.facts("f", "7").ref


def test_an_unknown_function_is_not_found() -> None:
    with pytest.raises(NotFound):
        gate().infer({}, "g")


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({b"host": b"localhost:8000"}, None),
        ({b"host": b"127.0.0.1"}, None),
        ({b"host": b"[::1]:8000"}, None),
        ({b"host": b"evil.example:8000"}, Forbidden),
        ({}, Forbidden),
        ({b"host": b"localhost:8000", b"origin": b"http://localhost:8000"}, None),
        ({b"host": b"localhost:8000", b"origin": b"http://localhost:9000"}, Forbidden),
        ({b"host": b"localhost:8000", b"origin": b"https://evil.example"}, Forbidden),
        ({b"host": b"localhost:8000", b"origin": b"null"}, Forbidden),
        ({b"host": b"localhost", b"content-length": b"2", b"content-type": b"application/json; charset=utf-8"}, None),
        ({b"host": b"localhost", b"content-length": b"2", b"content-type": b"text/plain"}, InvalidRequest),
        ({b"host": b"localhost", b"content-length": b"2"}, InvalidRequest),
        ({b"host": b"localhost", b"transfer-encoding": b"chunked"}, InvalidRequest),
    ],
)
def test_a_change_needs_one_of_our_hosts_our_own_origin_and_a_type_no_form_can_send(
    headers: dict[bytes, bytes], refusal: type[Exception] | None
) -> None:
    if refusal is None:
        assert "http:10.0.0.1" == gate().change("http", headers, PEER)
    else:
        with pytest.raises(refusal):
            gate().change("http", headers, PEER)


@pytest.mark.parametrize("value", [None, b"", b"Bearer", b"Bearer wrong", b"Basic secret-token", b"secret-token"])
def test_a_change_needs_the_token_where_there_is_one(value: bytes | None) -> None:
    headers = {b"host": b"localhost"} | ({b"authorization": value} if value is not None else {})
    with pytest.raises(Unauthorized):
        gate("secret-token").change("http", headers, PEER)


def test_the_token_opens_the_door_and_a_call_needs_none() -> None:
    guarded = gate("secret-token", any_host=True)

    assert "http" == guarded.change("http", {b"host": b"anywhere", b"authorization": b"Bearer secret-token"}, None)
    assert Ref("f", 2) == guarded.infer({}, "f").facts.ref


def test_a_record_says_its_limits() -> None:
    record = VersionRecord("f", 3, DIGEST, DIGEST, {}, {}, {"limits": {"timeout_s": 1, "body_mb": 1}}, "1")

    assert b"Despina-Version: 3\r\nDespina-Digest: " + DIGEST.encode() + b"\r\n" == Facts(record).lines
