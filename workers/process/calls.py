"""The calls that one member makes while it runs a batch, by its own lock.

A name means the version that this member's lock says, whatever other versions of it run in the same process; a call to its own
name means this very version, nested on the instance it comes from. A callee that is shared or not declared goes out over the
link. The deadline is handed down, each call is one hop deeper, and nothing is raised: an error is an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from functions.errors import DespinaError, InternalError, ModelFailed
from functions.graph import MAX_DEPTH
from functions.protocol.values import Request, Response
from functions.python_api.absent import refuse
from workers.process.instances import Instances
from workers.process.model import Runs
from workers.process.outcalls import Outcalls
from workers.process.spec import MemberSpec

LATEST = -1
"""How an author spells "no particular version"."""


class Calls:
    """``models`` are the members that this one's lock names, by name; ``own`` and ``instances`` are set once it exists."""

    def __init__(self, spec: MemberSpec, models: Mapping[str, Runs], outcalls: Outcalls) -> None:
        self._spec, self._models, self._outcalls = spec, models, outcalls
        self.own: Runs | None = None
        self.instances: Instances | None = None

    def __call__(self, request: Request, callee: str, version: int = LATEST) -> Sequence[Response]:
        """The answer to ``request``, whose deadline, hops and origin are those of the batch that makes the call."""
        if request.hops >= MAX_DEPTH:
            return _failed(ModelFailed(f"calls are {MAX_DEPTH} deep already, which is the limit"))
        request = replace(request, hops=request.hops + 1)
        if callee == self._spec.name:
            return self._call_own(request, version)
        locked = self._spec.lock.get(callee)
        if locked is None:
            return self._outcalls.ask(callee if version == LATEST else f"{callee}@{version}", [request])
        if version not in (LATEST, locked):
            return _failed(ModelFailed(f"version {version} was asked for, but {self._spec.ref} is locked to {callee}@{locked}"))
        return _ask(self._models[callee], request)

    def ready(self, callee: str, version: str) -> bool:
        """Whether a call would find that model: True for what the lock names. Raises TritonModelException for an undeclared
        one, which only a call can find out."""
        if callee == self._spec.name:
            return version in ("", "-1", str(self._spec.version))
        if callee not in self._spec.lock:
            refuse(f"is_model_ready({callee!r})", "it is not declared; name it in [calls] of function.toml")
        return version in ("", "-1", str(self._spec.lock[callee]))

    def _call_own(self, request: Request, version: int) -> Sequence[Response]:
        if version not in (LATEST, self._spec.version):
            return _failed(ModelFailed(f"version {version} was asked for, but a call to oneself means {self._spec.ref}"))
        if self.own is None or self.instances is None:
            return _failed(InternalError(f"{self._spec.ref} called itself before it was loaded"))
        if self.instances.busy_elsewhere():
            return _failed(
                ModelFailed(
                    f"{self._spec.ref} calls itself from another thread than the one that runs execute, while its only instance is busy "
                    f"with that execute: they would wait for each other for ever. Use exec() in execute itself, which runs nested"
                )
            )
        return _ask(self.own, request)


def _ask(model: Runs, request: Request) -> Sequence[Response]:
    if not model.native:
        # The callee may write to its inputs, the caller still holds them.
        request.inputs = {name: array.copy() for name, array in request.inputs.items()}
    return model.ask([request])


def _failed(error: DespinaError) -> Sequence[Response]:
    return [Response(error=error)]
