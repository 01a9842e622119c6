"""What a node hands to a zygote for one child: everything the child becomes, in one message that crosses with its descriptors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from functions.errors import InternalError

MARK = "DESPINA_REPLICA"
"""The environment variable that names the replica; it marks all processes the replica leaves behind."""
MARK_BYTES = 128
"""The room a zygote's own environment keeps for that name."""
_DESCRIPTORS = 4


@dataclass(frozen=True, slots=True)
class Birth:
    """One child to fork."""

    id: str
    spec: Mapping[str, Any]
    """A ReplicaSpec as JSON."""
    directory: str
    """Its working directory, also its HOME and TMPDIR; made by the node, removed after its death."""
    environment: Mapping[str, str]
    """Its whole environment: nothing is inherited."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """RLIMIT name in lower case without the prefix → value: ``{"core": 0, "nofile": 65536}``."""


def mark(replica: str) -> str:
    """What every process of ``replica`` has in its environment, whether it was forked or exec'd."""
    return f"{MARK}={replica}."


def stamp(replica: str) -> str:
    """The value of MARK for ``replica``: ended by a dot, so that no id is the beginning of another, and padded to one length."""
    value = f"{replica}."
    if len(value) > MARK_BYTES or not value.isascii():
        raise InternalError(f"replica id {replica!r} does not fit the {MARK_BYTES} bytes of its mark")
    return value.ljust(MARK_BYTES, "_")


def send(control: socket.socket, birth: Birth, listener: int, status: int, log: int) -> None:
    """Ask the zygote behind ``control`` (a SOCK_SEQPACKET pair) for a child with these descriptors.

    The order travels in a memory file, whose size nothing limits; the message itself is small and is sent whole or not at all.
    Raises OSError when the zygote is gone, BlockingIOError when it has too many orders unread.
    """
    order = os.memfd_create(f"birth {birth.id}"[:200])
    try:
        data = memoryview(json.dumps(asdict(birth), separators=(",", ":")).encode())
        while data:
            data = data[os.write(order, data) :]
        socket.send_fds(control, [b"fork"], [order, listener, status, log])
    finally:
        os.close(order)


def receive(control: socket.socket) -> tuple[Birth, int, int, int] | None:
    """The next order and its listener, status pipe and log; None when the node has closed its end."""
    message, descriptors, _, _ = socket.recv_fds(control, 64, _DESCRIPTORS)
    if not message:
        return None
    if len(descriptors) != _DESCRIPTORS:
        raise InternalError(f"an order with {len(descriptors)} descriptors; {_DESCRIPTORS} are needed")
    order, listener, status, log = descriptors
    with open(order, "rb") as file:
        file.seek(0)
        birth = Birth(**json.load(file))
    return birth, listener, status, log
