"""The key space: what is made can be taken apart, and sorts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import InvalidRequest
from functions.names import FUNCTION, TAG
from registry import keys
from registry.stores.base import checked

NAMES = st.from_regex(FUNCTION, fullmatch=True).filter(lambda name: ".." not in name)
TAGS = st.from_regex(TAG, fullmatch=True).filter(lambda tag: ".." not in tag)
NUMBERS = st.integers(1, 2**63 - 1)


@given(NAMES, TAGS, NUMBERS)
def test_every_key_can_be_taken_apart(name: str, tag: str, number: int) -> None:
    assert keys.Parsed(name, "versions", "", number) == keys.parse(keys.version(name, number))
    assert keys.Parsed(name, "deleted", "", number) == keys.parse(keys.deleted(name, number))
    assert keys.Parsed(name, "deleting", "", number) == keys.parse(keys.deleting(name, number, "0af3"))
    assert keys.Parsed(name, "tags", tag, number) == keys.parse(keys.tag(name, tag, number))
    assert keys.Parsed(name, "scale", "", number) == keys.parse(keys.scale(name, number))


@given(NAMES, TAGS, NUMBERS)
def test_every_store_can_hold_every_key(name: str, tag: str, number: int) -> None:
    for key in (keys.version(name, number), keys.tag(name, tag, number), keys.deleting(name, number, "0af3"), keys.blob("a" * 64)):
        assert key == checked(key)


@given(NAMES, NUMBERS, NUMBERS)
def test_keys_sort_as_their_numbers_do(name: str, one: int, other: int) -> None:
    assert (one < other) == (keys.version(name, one) < keys.version(name, other))


@given(NAMES, NUMBERS)
def test_all_keys_of_a_function_lie_under_its_prefix_and_no_other_functions_do(name: str, number: int) -> None:
    assert keys.version(name, number).startswith(keys.function(name))
    assert not keys.version(name + "x", number).startswith(keys.function(name))
    assert keys.deleting(name, number, "0af3").startswith(keys.deleting(name, number))


@pytest.mark.parametrize(
    "key", ["functions/a", "functions/a/versions/3.json", "functions/a/tags/live", "blobs/sha256/aa/aa", "functions/.DS_Store"]
)
def test_a_strangers_key_is_none_of_ours(key: str) -> None:
    assert keys.parse(key) is None


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "g" * 64, "a" * 65, "../" + "a" * 61, "a" * 64 + "\n"])
def test_a_blob_is_named_by_64_lower_case_hex_digits_only(text: str) -> None:
    with pytest.raises(InvalidRequest):
        keys.blob(text)


def test_a_blobs_key_holds_its_digest() -> None:
    assert "0f" * 32 == keys.blob_sha256(keys.blob("0f" * 32))
