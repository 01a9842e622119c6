"""The error tree: codes and wire numbers are stable and unique, and an error survives the wire."""

import re
from collections import Counter

import pytest

from functions import errors

TREE = list(errors.tree())


def test_codes_are_unique() -> None:
    repeated = [code for code, n in Counter(kind.code for kind in TREE).items() if n > 1]

    assert repeated == []


def test_wire_numbers_are_unique_and_fit_sixteen_bits() -> None:
    repeated = [wire for wire, n in Counter(kind.wire for kind in TREE).items() if n > 1]

    assert repeated == []
    assert all(0 <= kind.wire < 1 << 16 for kind in TREE)


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.code)
def test_an_error_survives_the_wire(kind: type[errors.DespinaError]) -> None:
    arrived = errors.from_wire(kind.wire, "what happened")

    assert kind is type(arrived)
    assert arrived.message == "what happened"


def test_an_unknown_number_is_a_protocol_error() -> None:
    arrived = errors.from_wire(65_000, "x")

    assert type(arrived) is errors.ProtocolError
    assert "65000" in arrived.message


@pytest.mark.parametrize("kind", TREE[1:], ids=lambda kind: kind.code)
def test_the_drawn_tree_shows_every_class_with_its_code(kind: type[errors.DespinaError]) -> None:
    drawing = (errors.__doc__ or "").split("Each class has", 1)[0]

    assert re.search(rf"\b{kind.__name__}\b", drawing)
    if not kind.__subclasses__() and kind.__bases__[0] is not errors.DespinaError:
        assert re.search(rf"\b{kind.code}\b", drawing)


def test_exactly_four_branches_say_who_must_act() -> None:
    branches = {kind.__name__ for kind in errors.DespinaError.__subclasses__()}

    assert branches == {"CallerError", "CapacityError", "AuthorError", "InternalError"}


def test_a_refused_bundle_names_field_and_fix() -> None:
    error = errors.BundleRefused("has 2 dims, the model 3", field="config.pbtxt: input[0].dims", fix="write dims: [3, 224, 224]")

    assert str(error) == "config.pbtxt: input[0].dims: has 2 dims, the model 3; write dims: [3, 224, 224]"
