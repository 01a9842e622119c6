"""How the command line shows things to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.diff import Difference

out = Console()
err = Console(stderr=True)

_LONG = 20


def functions(entries: Sequence[Mapping[str, Any]]) -> None:
    table = _table("function", "live", "tags", "versions", "replicas", "")
    for entry in entries:
        tags = dict(entry["tags"])
        live = tags.pop("live", None)
        others = ", ".join(f"{tag}@{version}" for tag, version in tags.items())
        table.add_row(
            entry["name"],
            "-" if live is None else str(live),
            others,
            str(entry["versions"]),
            str(entry["replicas"]),
            "held" if entry["held"] else "",
        )
    out.print(table)


def function(description: Mapping[str, Any], replicas: Sequence[Mapping[str, Any]]) -> None:
    out.print(f"[bold]{description['name']}[/bold]")
    table = _table("version", "tags", "origin", "created", "by", "size", "calls")
    for version in description["versions"]:
        calls = ", ".join(f"{callee}@{number}" for callee, number in version["lock"].items())
        table.add_row(
            str(version["version"]),
            ", ".join(version["tags"]),
            version["origin"],
            version["created"],
            version["by"],
            size(version["size_bytes"]),
            calls,
        )
    out.print(table)
    if description["scale"]:
        out.print("scale override: " + ", ".join(f"{key} = {value}" for key, value in description["scale"].items()))
    if replicas:
        running = _table("replica", "version", "state", "lane", "pid", "started in")
        for replica in replicas:
            seconds = sum(replica["phases"].values())
            lane = f"{replica['lane'] + 1}/{replica['lanes']}"
            running.add_row(replica["id"], str(replica["version"]), replica["state"], lane, str(replica["pid"]), f"{seconds:.2f} s")
        out.print(running)


def deployed(result: Mapping[str, Any]) -> None:
    for version in result["versions"]:
        calls = ", ".join(f"{callee}@{number}" for callee, number in locked(version["lock"]).items())
        out.print(f"{version['name']} @ {version['version']}  {version['digest'][:_LONG]}…" + (f"  calls {calls}" if calls else ""))
        for warning in version["warnings"]:
            out.print(f"  [yellow]warning[/yellow] {warning}")
    promotion(result["promotion"])


def promotion(outcome: Mapping[str, Any]) -> None:
    """One line for the move itself, one for each dependent."""
    reason = f": {outcome['reason']}" if outcome.get("reason") else ""
    out.print(f"{outcome['state']}{reason}", markup=False)
    for dependent in outcome.get("dependents", ()):
        words = " ".join(f"{key}={value}" for key, value in dependent.items() if key != "name" and value not in ("", None))
        out.print(f"  {dependent['name']}  {words}", markup=False)


def diff(found: Sequence[Difference]) -> None:
    if not found:
        out.print("no difference")
        return
    table = _table("part", "what", "before", "after")
    for difference in found:
        before, after = (("-" if value is None else str(value)) for value in (difference.before, difference.after))
        table.add_row(difference.part, difference.what, before, after)
    out.print(table)


def answer(reply: Mapping[str, Any], version: str) -> None:
    out.print(f"{reply['model_name']} @ {version}")
    table = _table("output", "type", "shape", "data")
    for output in reply["outputs"]:
        data = output.get("data", [])
        shown = ", ".join(_value(value) for value in data[:_LONG]) + (f", … {len(data) - _LONG} more" if len(data) > _LONG else "")
        table.add_row(output["name"], output["datatype"], str(output["shape"]), shown)
    out.print(table)


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


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
