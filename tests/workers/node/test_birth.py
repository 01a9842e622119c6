from __future__ import annotations

import os
import socket

import pytest

from functions.errors import InternalError
from workers.node import birth
from workers.node.birth import MARK_BYTES, Birth

ORDER = Birth("f-1-aa", {"members": ["x" * 300_000]}, "/work", {"PATH": "/bin"}, {"core": 0})


def test_an_order_of_any_size_crosses_with_its_descriptors() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open("/dev/null") as null:
        birth.send(ours, ORDER, null.fileno(), null.fileno(), null.fileno())
        received = birth.receive(theirs)
        assert received is not None
        order, *descriptors = received

        assert ORDER == order
        assert ["/dev/null"] * 3 == [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        ours.close()
        assert birth.receive(theirs) is None


def test_marks_have_one_length_and_none_is_the_beginning_of_another() -> None:
    assert {MARK_BYTES} == {len(birth.stamp(id)) for id in ("f-1", "f-10")}
    assert birth.mark("f-1") not in f"DESPINA_REPLICA={birth.stamp('f-10')}"
    assert birth.mark("f-1") in f"DESPINA_REPLICA={birth.stamp('f-1')}"


@pytest.mark.parametrize("id", ["x" * MARK_BYTES, "naïve"])
def test_an_id_that_does_not_fit_is_our_mistake(id: str) -> None:
    with pytest.raises(InternalError, match="does not fit"):
        birth.stamp(id)
