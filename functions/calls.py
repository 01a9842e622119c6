"""Which functions a bundle calls, and how each of those edges is to be resolved when a lock is made.

Three places say so, and a later one has the last word: literals in Python source (``InferenceRequest(model_name="…")``, found
without running it), the steps of an ensemble, and ``[calls]`` in function.toml.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from functions.errors import BundleRefused
from functions.names import FUNCTION, LIVE

MAX_SOURCE = 4 << 20
"""Longest Python file that is read for calls, in bytes or characters."""


@dataclass(frozen=True, slots=True)
class CallDecl:
    """One declared callee. Exactly one of ``follow`` and ``pinned`` is set."""

    follow: str | None = LIVE
    """The tag whose version is locked, and by which a re-lock resolves it again."""
    pinned: int | None = None
    """One version for ever."""
    shared: bool = False
    """Served by replicas of its own instead of inside the caller's process."""
    via: str = "ensemble"
    """``ensemble`` (a step), ``manifest`` (function.toml) or ``source`` (a literal in a .py file)."""


def declared_calls(
    config: Mapping[str, Any], manifest: Mapping[str, Any], sources: Mapping[str, str | bytes]
) -> tuple[dict[str, CallDecl], tuple[str, ...]]:
    """The callees by name, and what the author should know about them.

    ``config`` is normalised, ``manifest`` a checked one as JSON, ``sources`` the bundle's Python files by path (as bytes they
    may name their own encoding). A function that calls itself means its own version, so its own name is never among the
    callees. Raises BundleRefused where places contradict each other or the model's file does not compile."""
    own, artifact = config["name"], config["default_model_filename"]
    notes: list[str] = []
    calls = _from_sources(own, sources, artifact, notes) if config["backend"] == "python" else {}
    calls |= _from_steps(config)
    for name, entry in sorted(manifest["calls"].items()):
        if name == own:
            raise BundleRefused(
                f"{name!r} is this function",
                field=f"function.toml: calls.{name}",
                fix="remove it: a call to itself always means the same version",
            )
        calls[name] = _from_manifest(name, entry, calls.get(name))
    notes += [
        f"{name}: found in the source only; declare it in [calls] of function.toml"
        for name, call in sorted(calls.items())
        if call.via == "source"
    ]
    return dict(sorted(calls.items())), tuple(notes)


class _Literal(NamedTuple):
    """A call written out in source: the callee, and the version if that is written too."""

    name: str
    version: int


def _from_manifest(name: str, entry: Mapping[str, Any], found: CallDecl | None) -> CallDecl:
    version = entry["version"]
    if found is not None and found.via == "ensemble" and found.pinned is not None and version != found.pinned:
        raise BundleRefused(
            f"a step of the ensemble wants version {found.pinned}, this says otherwise",
            field=f"function.toml: calls.{name}",
            fix=f"write version = {found.pinned} here or model_version: -1 in the step",
        )
    return CallDecl(None if version else entry["tag"] or LIVE, version, entry["shared"], "manifest")


def _from_steps(config: Mapping[str, Any]) -> dict[str, CallDecl]:
    calls: dict[str, CallDecl] = {}
    for index, step in enumerate(config.get("ensemble_scheduling", {}).get("step", ())):
        name, version = step["model_name"], step["model_version"]
        call = CallDecl(None, version) if version > 0 else CallDecl()
        if calls.setdefault(name, call) != call:
            raise BundleRefused(
                f"two steps call {name!r} in different versions; a version locks one version of each function it calls",
                field=f"config.pbtxt: ensemble_scheduling.step[{index}].model_version",
                fix="write the same model_version in both",
            )
    return calls


def _from_sources(own: str, sources: Mapping[str, str | bytes], artifact: str, notes: list[str]) -> dict[str, CallDecl]:
    versions: dict[str, set[int]] = {}
    for path, text in sorted(sources.items()):
        tree = _compiled(path, text, path.partition("/")[2] == artifact, notes)
        for literal in _literals(tree, path, notes) if tree else ():
            if literal.name != own:
                versions.setdefault(literal.name, set()).add(literal.version)
    calls: dict[str, CallDecl] = {}
    for name, written in versions.items():
        pinned = min(written) if len(written) == 1 else 0
        calls[name] = CallDecl(None, pinned, via="source") if pinned else CallDecl(via="source")
        if len(written) > 1:
            notes.append(f"{name}: called in several versions; its tag {LIVE!r} is locked, the others are resolved when they are called")
    return calls


def _compiled(path: str, text: str | bytes, required: bool, notes: list[str]) -> ast.Module | None:
    """The file's syntax tree. A file other than the model's own may be for another Python, or no program at all."""
    try:
        if len(text) > MAX_SOURCE:
            raise ValueError(f"longer than {MAX_SOURCE} bytes")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape in an author's string is not ours to report
            tree = ast.parse(text, path)
            compile(tree, path, "exec", dont_inherit=True)  # finds more than parsing does: a return outside a function
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        field = f"{path}:{line}" if line else path
        if required:
            raise BundleRefused(f"does not compile: {reason}", field=field) from error
        notes.append(f"{field}: not read for calls, because it does not compile: {reason}")
        return None
    return tree


def _literals(tree: ast.Module, path: str, notes: list[str]) -> Iterator[_Literal]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called(node.func) != "InferenceRequest":
            continue
        words = {word.arg: word.value for word in node.keywords}
        name, version = words.get("model_name"), _number(words.get("model_version"))
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and FUNCTION.fullmatch(name.value):
            yield _Literal(name.value, max(0, version))
        else:
            notes.append(
                f"{path}:{node.lineno}: calls a function whose name is only known when it runs; declare it in [calls] of function.toml"
            )


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _number(node: ast.expr | None) -> int:
    """A version written out; 0 where it is left out, computed or negative, all of which mean the locked one."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else 0
