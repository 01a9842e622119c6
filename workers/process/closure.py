"""All members of one version's graph, loaded in this process, each bound to the others by its own lock."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from functions.config.spec import ModelConfig
from functions.errors import StartFailed
from functions.names import Ref
from workers.backends import BACKENDS
from workers.backends.base import Backend, Member
from workers.process.calls import Calls
from workers.process.counters import Counters
from workers.process.elsewhere import Elsewhere
from workers.process.ensemble import Ensemble
from workers.process.instances import Instances
from workers.process.layout import native
from workers.process.log import log
from workers.process.model import Model, Runs
from workers.process.outcalls import Outcalls
from workers.process.page import Page
from workers.process.spec import MemberSpec, ReplicaSpec
from workers.process.warmup import warm

BRANCH_THREADS = 8
"""Threads that run slow branches of ensembles beside one another, in the whole process."""


class Closure:
    """Made in three steps, so that each can be timed: ``libraries``, ``load``, ``warm_up``."""

    def __init__(self, spec: ReplicaSpec, page: Page, outcalls: Outcalls) -> None:
        self._spec, self._page, self._outcalls = spec, page, outcalls
        self._configs = {member.ref: ModelConfig.of(member.config) for member in spec.members}
        self._members = {member.ref: member for member in spec.members}
        self._loaded: dict[Ref, Model | Ensemble] = {}
        self._pool = ThreadPoolExecutor(BRANCH_THREADS, "branch")

    @property
    def root(self) -> Model | Ensemble:
        return self._loaded[self._spec.root.ref]

    def libraries(self) -> None:
        """Import what the backends of this closure need. Raises StartFailed."""
        for name in sorted({config.backend for config in self._configs.values() if not config.ensemble}):
            self._backend(name)

    def load(self) -> None:
        """Make every instance, callees before their callers. Raises StartFailed with what the author must know."""
        for ref in _callees_first(self._members, self._spec.root.ref):
            member, config = self._members[ref], self._configs[ref]
            counters = Counters(self._page, member.name, member.version, config.metric_tags)
            self._loaded[ref] = self._ensemble(member, config, counters) if config.ensemble else self._model(member, config, counters)

    def warm_up(self) -> None:
        """Run the warm-up samples of every member, then begin to count. Raises StartFailed."""
        for ref, loaded in self._loaded.items():
            if isinstance(loaded, Model):
                warm(loaded, self._members[ref].model_dir)
        for loaded in self._loaded.values():
            loaded.counters.counting = True

    def close(self) -> None:
        """Finalize every instance, callers before their callees."""
        for loaded in reversed(self._loaded.values()):
            if isinstance(loaded, Model):
                loaded.close()
        self._pool.shutdown(wait=False)

    def _ensemble(self, member: MemberSpec, config: ModelConfig, counters: Counters) -> Ensemble:
        return Ensemble(config, self._callees(member), counters, self._pool)

    def _model(self, member: MemberSpec, config: ModelConfig, counters: Counters) -> Model:
        calls = Calls(member, self._callees(member), self._outcalls)
        cls = self._backend(config.backend)
        started = time.monotonic()
        backends: list[Backend] = []
        for name in self._instance_names(config, member.threads):
            backends.append(
                cls(
                    Member(
                        name=member.name,
                        version=member.version,
                        model_dir=member.model_dir,
                        version_dir=member.version_dir,
                        config=member.config,
                        instance=name,
                        call=calls,
                        ready=calls.ready,
                    )
                )
            )
        log("loaded", member=str(member.ref), instances=len(backends), seconds=round(time.monotonic() - started, 3))
        model = Model(config, Instances(backends), counters, native=native(config))
        calls.own, calls.instances = model, model.instances
        return model

    def _callees(self, member: MemberSpec) -> Mapping[str, Runs]:
        """The members that ``member``'s lock names, by name. A call to its own name is not among them."""
        callees: dict[str, Runs] = {}
        for name, version in member.lock.items():
            ref = Ref(name, version)
            if name in member.shared:
                callees[name] = Elsewhere(ref, self._outcalls)
            elif ref != member.ref:
                callees[name] = self._loaded[ref]
        return callees

    def _backend(self, name: str) -> type[Backend]:
        entry = BACKENDS.get(name)
        if entry is None:
            raise StartFailed(f"backend '{name}' is not one of {', '.join(BACKENDS)}")
        try:
            cls: type[Backend] = getattr(importlib.import_module(entry.module), entry.cls)
        except ImportError as error:
            raise StartFailed(
                f"backend '{name}' needs {entry.library or entry.module}, which is not installed here ({error}): "
                f"pip install 'despina[{entry.extra}]'"
            ) from error
        return cls

    def _instance_names(self, config: ModelConfig, threads: int) -> list[str]:
        """Of this lane's instances: those of the first group first, lane by lane; more than the config counts get the next numbers."""
        names = [f"{group.name}_{number}" for group in config.instance_groups for number in range(group.count)]
        first = self._spec.lane * threads
        group = config.instance_groups[-1].name if config.instance_groups else config.name
        return [names[number] if number < len(names) else f"{group}_{number}" for number in range(first, first + threads)]


def _callees_first(members: Mapping[Ref, MemberSpec], root: Ref) -> Iterator[Ref]:
    """Every member that ``root`` reaches, each once. Raises StartFailed when the spec lacks one."""
    seen: set[Ref] = set()

    def visit(ref: Ref) -> Iterator[Ref]:
        if ref in seen:
            return
        seen.add(ref)
        member = members.get(ref)
        if member is None:
            raise StartFailed(f"{ref} is locked by a member of this replica but was not given to it")
        for name, version in member.lock.items():
            if name not in member.shared:
                yield from visit(Ref(name, version))
        yield ref

    yield from visit(root)
