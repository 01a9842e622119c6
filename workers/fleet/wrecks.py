"""What lay with a replica when its link was lost, and who of it gets another chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from functions.errors import AuthorHung, DespinaError, ReplicaDied
from workers.fleet.call import Call
from workers.node.messages import ReplicaEvent


@dataclass(frozen=True, slots=True)
class Wreck:
    number: int
    """The link's number in the replica's page."""
    calls: Mapping[int, Call]
    """By frame id, in the order sent."""
    reason: str

    def settle(self, event: ReplicaEvent | None, *, idempotent: bool = False) -> tuple[list[tuple[Call, DespinaError]], list[Call]]:
        """The calls that have failed, each with its error, and those that may be queued again.

        ``event`` is the node's word that the replica is gone: calls of the batches that were running have failed with its error,
        the others had not started. Without it nothing is known to be unstarted, so all have failed: running one twice would be
        worse.
        """
        failed: list[tuple[Call, DespinaError]] = []
        again: list[Call] = []
        running = frozenset(event.running) if event is not None else frozenset()
        for id, call in self.calls.items():
            started = event is None or self.number << 48 | id in running
            if not started or (idempotent and not call.retried and not (event is not None and event.wire == AuthorHung.wire)):
                call.retried = call.retried or started
                again.append(call)
            elif event is None:
                failed.append(
                    (call, ReplicaDied(f"{call.ref}: the link to its replica was lost ({self.reason}) and its node did not say why"))
                )
            else:
                failed.append((call, event.error()))
        return failed, again
