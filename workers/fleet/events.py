"""What nodes let their clients know: the two messages of ``workers.node.messages``, and two that the client adds itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from functions.errors import DespinaError
from functions.names import Ref
from workers.node.messages import ReplicaEvent, VersionEvent


@dataclass(frozen=True, slots=True)
class Refused:
    """A node did not take a lease."""

    ref: Ref
    error: DespinaError


@dataclass(frozen=True, slots=True)
class Vanished:
    """A replica that a node had reported is not known to it any more; how it ended was not seen (the connection was down)."""

    id: str


Event: TypeAlias = ReplicaEvent | VersionEvent | Refused | Vanished
