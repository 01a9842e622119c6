"""How the command line shows things to people. All text may come from a server or an author, so none of it is markup, and none of it
reaches the terminal as a control sequence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway import outcomes
from gateway.diff import Difference

_WIDE = 1_000_000
"""Columns where there is no terminal: nothing is cut or wrapped for who reads it by program."""
_LONG = 20
_MOVES = 5

out = Console(markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else _WIDE)
err = Console(markup=False, emoji=False, highlight=False, stderr=True)


def plain(text: object) -> str:
    """Text with what is not printable written as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(text))


def say(text: object, style: str = "") -> None:
    """One line."""
    out.print(Text(plain(text), style=style))


def functions(entries: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for entry in entries:
        tags = dict(entry["tags"])
        live = tags.pop("live", "-")
        others = ", ".join(f"{tag}@{version}" for tag, version in tags.items())
        rows.append((entry["name"], live, others, entry["versions"], entry["replicas"], "held" if entry["held"] else ""))
    _table(("function", "live", "tags", "versions", "replicas", ""), rows)


def function(page: Mapping[str, Any]) -> None:
    """All of a function's page: what it takes and gives, its versions, tags and their last moves, scale, failures and replicas."""
    say(page["name"], "bold")
    signature = [(kind, tensor["name"], tensor["datatype"], tensor["shape"]) for kind in ("input", "output") for tensor in page[f"{kind}s"]]
    _table((f"of version {page['shown']}", "name", "type", "shape"), signature)
    _table(("version", "tags", "origin", "created", "by", "size", "calls"), map(_version, page["versions"]))
    own, override = page["effective_scale"], page["scale"]
    words = ", ".join(f"{key} = {'-' if value is None else value}" for key, value in own.items() if key != "snapshot")
    say(f"scale: {words}" + (f" (overridden: {', '.join(override)})" if override else ""))
    moves = [
        (move["tag"], move["version"], _time(move["at"]), move["by"], move["reason"], "held" if move["held"] else "")
        for move in page["history"][:_MOVES]
    ]
    _table(("tag", "moved to", "at", "by", "reason", ""), moves)
    for failure in page["failures"]:
        say(f"version {failure['version']} cannot start: {failure['reason']}", "red")
    _table(("replica", "version", "state", "lane", "pid", "started in"), map(_replica, page["replicas"]))


def deployed(result: Mapping[str, Any]) -> None:
    """What was recorded and what moved; a promotion that failed is the error's to tell."""
    for version in result["versions"]:
        calls = ", ".join(f"{callee}@{number}" for callee, number in locked(version["lock"]).items())
        say(f"{version['name']} @ {version['version']}  {version['digest'][:_LONG]}…" + (f"  calls {calls}" if calls else ""))
        for warning in version["warnings"]:
            say(f"  warning: {warning}", "yellow")
    if result["promotion"]["state"] == "moved":
        for name, at in result["tags"].items():
            say(outcomes.moved(name, result["tag"], at["before"], at["after"]))
        dependents(result["promotion"], result["tag"])
    elif result["promotion"]["state"] == "skipped":
        say(f"no tag has moved: {result['promotion']['reason']}")


def moved(move: Mapping[str, Any]) -> None:
    """One move of one tag, with where it was before."""
    say(outcomes.moved(move["name"], move["tag"], move["before"], move["version"]))
    if move["held"]:
        say(f"held there until it is moved by hand: despina tag {move['name']} {move['tag']} {move['before']}")
    dependents(move["promotion"], move["tag"])


def dependents(promotion: Mapping[str, Any], tag: str) -> None:
    """One line for each."""
    for dependent in promotion.get("dependents", ()):
        say(f"  {outcomes.dependent(dependent, tag)}")


def diff(found: Sequence[Difference]) -> None:
    if not found:
        say("no difference")
        return
    rows = [(part, what, *("-" if value is None else value for value in values)) for part, what, *values in found]
    _table(("part", "what", "before", "after"), rows)


def answer(reply: Mapping[str, Any], version: str) -> None:
    say(f"{reply['model_name']} @ {version}")
    rows = []
    for output in reply["outputs"]:
        data = output.get("data", [])
        shown = ", ".join(_value(value) for value in data[:_LONG]) + (f", … {len(data) - _LONG} more" if len(data) > _LONG else "")
        rows.append((output["name"], output["datatype"], output["shape"], shown))
    _table(("output", "type", "shape", "data"), rows)


def locked(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Callee → version number, from either form in which routes show a lock."""
    return {callee: edge["version"] if isinstance(edge, Mapping) else edge for callee, edge in lock.items()}


def size(bytes_: int) -> str:
    amount = float(bytes_)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _version(version: Mapping[str, Any]) -> tuple[object, ...]:
    calls = ", ".join(f"{callee}@{number}" for callee, number in version["lock"].items())
    told = (version["version"], ", ".join(version["tags"]), version["origin"], _time(version["created"]), version["by"])
    return (*told, size(version["size_bytes"]), calls)


def _replica(replica: Mapping[str, Any]) -> tuple[object, ...]:
    lane = f"{replica['lane'] + 1}/{replica['lanes']}"
    seconds = sum(replica["phases"].values())
    return (replica["id"], replica["version"], replica["state"], lane, replica["pid"], f"{seconds:.2f} s")


def _time(text: str) -> str:
    """``2026-11-30T20:54:12.453Z`` to the second, for a column."""
    return f"{text[:10]} {text[11:19]}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Nothing where there is no row. Long words are broken on a narrow terminal rather than cut."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    if table.rows:
        out.print(table)
