"""Names: what is accepted, what is refused, and that refusals show the value."""

import pytest

from functions.errors import InvalidRequest
from functions.names import Ref, function_name, parse_ref, tag_name, version_number


@pytest.mark.parametrize("text", ["a", "A9", "read_text", "resnet50.v2-b", "0", "9lives", "x" * 128])
def test_a_good_function_name_is_itself(text: str) -> None:
    assert function_name(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a..b", "-a", "_a", "a/b", "a b", "ü", "a\n", "a\x00", "x" * 129, "a%2f"])
def test_a_bad_function_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a function name"):
        function_name(text)


@pytest.mark.parametrize("text", ["live", "canary", "v1.2", "L"])
def test_a_good_tag_is_itself(text: str) -> None:
    assert tag_name(text) == text


@pytest.mark.parametrize("text", ["", "1", "1live", "a/b", "a..b", "x" * 65, "live\n"])
def test_a_bad_tag_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a tag"):
        tag_name(text)


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("42", 42), (str(2**63 - 1), 2**63 - 1)])
def test_a_version_is_a_whole_number_from_one(text: str, number: int) -> None:
    assert number == version_number(text)


@pytest.mark.parametrize("text", ["", "0", "01", "-1", "+1", "1a", "1.0", "٣", str(2**63), "9" * 40])
def test_anything_else_is_no_version(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a version"):
        version_number(text)


def test_a_reference_reads_as_it_is_written() -> None:
    assert Ref("digits", 3) == parse_ref("digits@3")
    assert str(Ref("digits", 3)) == "digits@3"


@pytest.mark.parametrize("text", ["digits", "digits@", "@3", "digits@live", "a@b@3"])
def test_half_a_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_ref(text)
