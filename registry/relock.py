"""Re-locking: which other functions' tags move when some tags move, and to what. Pure.

A pointer is a function's tag. When pointer (f, T) moves, a pointer (g, T) or (g, live) follows if the version it points at locked f by
tag T. Only the edges to what moved are locked again; every other edge stays as it is. So undoing a move gives each dependent
exactly the lock it had before, hence the digest it had, hence the version it had: no new numbers. (Resolving all edges again would pick up
moves that the dependent had been kept from, and could make a dependent that refuses one callee's new version refuse every other's too.)

A version's digest follows from its content and its callees' digests, so the whole chain is known before anything is
recorded: a step names what its version's digest will be, and the callees' new digests it rests on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from functions.names import LIVE
from functions.records import TagRecord, VersionRecord, version_digest


class Pointer(NamedTuple):
    """One tag of one function."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class Relock:
    """One dependent of a move, and what is to become of it."""

    name: str
    tag: str
    """The tag of ``name`` that is to move (or stay, see ``passed``)."""
    base: int
    """Where it points now."""
    digest: str
    """Of the version it is to point at: ``base``'s content with the new lock."""
    version: int | None = None
    """The existing version with that digest; None if it is still to be recorded."""
    edges: Mapping[str, str] = field(default_factory=dict)
    """The callees to lock again → the digests they must have."""
    passed: str = ""
    """Why this dependent stays where it is (``held``, ``split``, ``stays``); "" when it follows."""


def plan(
    moves: Mapping[Pointer, str],
    pointers: Mapping[Pointer, TagRecord],
    record: Callable[[str, int], VersionRecord],
    find: Callable[[str, str], VersionRecord | None],
    stay: Collection[str] = (),
) -> list[Relock]:
    """The dependents of ``moves`` (pointer → digest it moves to), callees before callers, each once.

    ``pointers`` is every tag of every function now; ``record`` reads a version, ``find`` looks for one by name and digest. A dependent
    whose tag is held, is split between several versions, or whose name is in ``stay`` is listed with the reason, and what depends on it
    alone is not listed: it has not moved. A move to where a tag points already counts as one, so repeating a release completes
    one that was interrupted.
    """
    bases = {
        pointer: record(pointer.name, current.version)
        for pointer, current in pointers.items()
        if pointer not in moves and pointer.tag in {LIVE, *(move.tag for move in moves)}
    }
    moved = dict(moves)
    steps = []
    for pointer in _callees_first(moves, bases):
        base = bases[pointer]
        edges = {callee: moved[target] for callee, target in _followed(pointer, base) if target in moved}
        lock = {callee: replace(edge, digest=edges.get(callee, edge.digest)) for callee, edge in base.lock.items()}
        digest = version_digest(base.content, lock, base.environment)
        if digest == base.digest:
            continue
        existing = find(pointer.name, digest)
        step = Relock(pointer.name, pointer.tag, base.version, digest, existing.version if existing else None, edges)
        passed = _passed(pointers[pointer], stay)
        steps.append(replace(step, passed=passed))
        if not passed:
            moved[pointer] = digest
    return steps


def _followed(pointer: Pointer, base: VersionRecord) -> Iterator[tuple[str, Pointer]]:
    """The pointers that ``pointer`` follows while it points at ``base``, by callee."""
    for callee, edge in sorted(base.lock.items()):
        if edge.follow is not None and pointer.tag in (LIVE, edge.follow):
            yield callee, Pointer(callee, edge.follow)


def _reached(moves: Collection[Pointer], bases: Mapping[Pointer, VersionRecord]) -> set[Pointer]:
    """All pointers that follow a move, directly or through others."""
    followers: dict[Pointer, list[Pointer]] = defaultdict(list)
    for pointer, base in bases.items():
        for _, target in _followed(pointer, base):
            followers[target].append(pointer)
    found: set[Pointer] = set()
    todo = list(moves)
    while todo:
        new = set(followers[todo.pop()]) - found
        found |= new
        todo += new
    return found


def _callees_first(moves: Collection[Pointer], bases: Mapping[Pointer, VersionRecord]) -> list[Pointer]:
    """The pointers that moves reach, each after those it follows. Functions that call each other have no such order: there, a
    ``shared`` edge does not count, so that a change enters the ring once and runs once around it."""
    reached = _reached(moves, bases)
    order: dict[Pointer, None] = {}
    entered: set[Pointer] = set()

    def visit(pointer: Pointer) -> None:
        if pointer not in reached or pointer in entered:
            return
        entered.add(pointer)
        base = bases[pointer]
        for callee, target in _followed(pointer, base):
            closes_ring = base.lock[callee].shared and target in _reached([pointer], bases)
            if not closes_ring:
                visit(target)
        order[pointer] = None

    for pointer in sorted(reached):
        visit(pointer)
    return list(order)


def _passed(current: TagRecord, stay: Collection[str]) -> str:
    if current.name in stay:
        return "stays"
    if current.held:
        return "held"
    return "split" if len(current.targets) > 1 else ""
