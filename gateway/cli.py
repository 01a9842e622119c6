"""The command despina. All but up and down talk to a server over its public routes; DESPINA_URL names it.

Exit codes: 0 done; 1 refused or failed, with the reason on standard error; 2 wrong usage, or no server there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from functions.errors import (
    AuthorError,
    CapacityError,
    Conflict,
    DeadlineExceeded,
    DespinaError,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthorized,
)
from functions.names import LIVE, parse_ref
from gateway import outcomes, tables
from gateway.client import Client, ServerUnreachable
from gateway.diff import differences
from gateway.place import owner_of
from gateway.progress import Quiet, watching
from workers.fleet.promotion import WAIT_S, Dependents

if TYPE_CHECKING:
    from gateway.invoke import Tensor

# numpy, protobuf and pydantic take longer to load than most commands run: the three that need them import their parts themselves.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

GONE_S = 120.0
"""How long ``down`` waits for the platform to end."""

Url = Annotated[str, typer.Option("--url", envvar="DESPINA_URL", help="The server.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[float, typer.Option("--wait", min=0, max=3600, help="Seconds that the target has to answer its warm-up.")]
DependentsOption = Annotated[Dependents, typer.Option("--dependents", help="What becomes of functions that follow this one.")]
URL = "http://127.0.0.1:8000"
DATA = "default: $XDG_STATE_HOME/despina, or ~/.local/state/despina."


def _show_version(asked: bool) -> None:
    if asked:
        tables.say(f"despina {version_of('despina')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")] = False,
) -> None:
    """What holds for all commands."""


@app.command()
def up(
    data: Annotated[Path | None, typer.Option(help=f"Directory that holds everything; {DATA}")] = None,
    store: Annotated[str | None, typer.Option(help="URL of the store; default: file:// in the data directory.")] = None,
    board: Annotated[str | None, typer.Option(help="redis:// URL of the board; default: a server of its own.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of the HTTP interface; default 8000, 0: a free one.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port of the metrics; default 8002, 0: a free one.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file with the certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with its private key.")] = None,
    deploy: Annotated[list[Path] | None, typer.Option(help="Bundle to deploy before the ready line is printed; may be repeated.")] = None,
) -> None:
    """Run the platform of this machine until SIGTERM or SIGINT. Prints one line, ready http=… metrics=…, when it serves."""
    from gateway import deploy as deploying
    from gateway import settings as settings_of
    from gateway import up as platform

    options = {
        "data": data,
        "store": store,
        "board": board,
        "host": host,
        "http_port": http_port,
        "metrics_port": metrics_port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    try:
        settings = settings_of.load(options)
        bundles = deploying.read(deploy or [])
    except DespinaError as error:
        sys.stderr.write(f"despina up: {error}\n")
        raise typer.Exit(2) from None
    token = settings.admin_token.get_secret_value() if settings.admin_token else None

    def deploy_all(url: str, _paths: Sequence[Path]) -> None:
        try:
            with Client(url, token, settings.tls_cert) as client:
                result = deploying.deploy(client, bundles, Quiet(), tag=LIVE, promote=True, dependents=Dependents.MOVE, wait_s=WAIT_S)
        except ServerUnreachable as error:
            raise CapacityError(str(error)) from None
        _succeed(result)

    raise typer.Exit(platform.run(settings, deploy or [], deploy_all))


@app.command()
def down(
    data: Annotated[Path | None, typer.Option(help=f"The data directory it was started with; {DATA}")] = None, as_json: AsJson = False
) -> None:
    """Stop the platform that owns a data directory, and wait until it is gone."""
    from gateway import settings as settings_of

    data = data or settings_of.load({}).data
    with _exits():
        pid = _stop(data)
        _print(as_json, {"stopped": pid}, lambda: tables.say(f"stopped (pid {pid})"))


@app.command()
def deploy(
    paths: Annotated[list[Path], typer.Argument(help="Bundles; together they are one release.", metavar="PATH...")],
    name: Annotated[str | None, typer.Option(help="Name of the function; default: the directory's.")] = None,
    tag: Annotated[str, typer.Option(help="Tag to move.")] = LIVE,
    promote: Annotated[bool, typer.Option("--promote/--no-promote", help="Move the tag once the version has answered its warm-up.")] = True,
    dependents: DependentsOption = Dependents.MOVE,
    wait: Wait = WAIT_S,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Upload bundles as versions, callees first, and move the tag of all of them. Only files that the server lacks travel."""
    from gateway import deploy as deploying

    with _exits(), _client(url) as client, watching(as_json) as watcher:
        bundles = deploying.read(paths, name)
        result = deploying.deploy(client, bundles, watcher, tag=tag, promote=promote, dependents=dependents, wait_s=wait)
        watcher.end()
        _print(as_json, result, lambda: tables.deployed(result))
        _succeed(result)


@app.command()
def invoke(
    name: Annotated[str, typer.Argument(help="The function: NAME, NAME@3 or NAME@TAG.")],
    image: Annotated[Path | None, typer.Option(help="A picture file, for a function that takes one as bytes.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="A file with a v2 request or {input: value}; - for standard input.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=VALUE; VALUE is JSON, @file of JSON, or a string for BYTES.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--as-json", help="Print JSON, as is done where the output is no terminal.")] = False,
    url: Url = URL,
) -> None:
    """Call a function. Names, types and shapes are checked before anything is sent."""
    from gateway import invoke as invoking

    with _exits(), _client(url) as client:
        if sum(given is not None for given in (image, json_file, inputs)) > 1:
            raise typer.BadParameter("--image, --json and --input exclude each other")
        function, _, selector = name.partition("@")
        metadata = client.metadata(function, selector or None)
        tensors = _inputs(metadata, image, json_file, inputs)
        size = invoking.batch(tensors, metadata)
        if size > 1:
            invoking.check_batch(size, client.config(function, selector or None))
        body, header_length = invoking.encode(tensors, metadata)
        response = client.infer(function, selector or None, body, header_length, timeout)
        length = response.headers.get("Inference-Header-Content-Length")
        reply = invoking.decode(response.content, None if length is None else int(length))
        version = response.headers["Despina-Version"]
        _print(as_json or not sys.stdout.isatty(), reply, lambda: tables.answer(reply, version))


@app.command("ls")
def list_functions(url: Url = URL, as_json: AsJson = False) -> None:
    """List the functions."""
    with _exits(), _client(url) as client:
        found = client.functions()
        _print(as_json, found, lambda: tables.functions(found))


@app.command()
def show(name: str, url: Url = URL, as_json: AsJson = False) -> None:
    """Show a function: inputs, outputs, versions, tags and their last moves, scale and replicas."""
    with _exits(), _client(url) as client:
        page = _page(client, name)
        _print(as_json, page, lambda: tables.function(page))


@app.command()
def diff(
    name: str,
    before: Annotated[str, typer.Argument(metavar="A", help="A version or a tag.")],
    after: Annotated[str, typer.Argument(metavar="B", help="A version or a tag.")],
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two versions: files, configuration, manifest, lock."""
    with _exits(), _client(url) as client:
        tags = client.function(name)["tags"]
        records = [client.version(name, _number(text, tags)) for text in (before, after)]
        found = differences(*records)
        _print(as_json, [difference._asdict() for difference in found], lambda: tables.diff(found))


@app.command()
def tag(
    name: str,
    tag: Annotated[str, typer.Argument()],
    version: Annotated[str, typer.Argument(help="A version or a tag.")],
    dependents: DependentsOption = Dependents.MOVE,
    wait: Wait = WAIT_S,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Point a tag at a version, once that has answered its warm-up."""
    with _exits(), _client(url) as client:
        number = _number(version, client.function(name)["tags"])
        with _moving(client, name, tag) as before:
            moved = client.move(name, tag, number, dependents, wait)
        _print(as_json, {**moved, "before": before}, lambda: tables.moved({**moved, "before": before}))


@app.command()
def rollback(
    name: str,
    to: Annotated[str | None, typer.Option(help="A version or a tag; default: what the tag was before.")] = None,
    tag: Annotated[str, typer.Option(help="The tag to point back.")] = LIVE,
    dependents: DependentsOption = Dependents.MOVE,
    wait: Wait = WAIT_S,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Point a tag back, and hold it there until it is moved by hand."""
    with _exits(), _client(url) as client:
        target = int(to) if to is not None and to.isascii() and to.isdigit() else to
        with _moving(client, name, tag) as before:
            moved = client.rollback(name, target, tag, dependents, wait)
        _print(as_json, {**moved, "before": before}, lambda: tables.moved({**moved, "before": before}))


@app.command()
def rm(
    version: Annotated[str, typer.Argument(metavar="NAME@V", help="The version.")],
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Delete a version that no tag and no other version needs."""
    with _exits(), _client(url) as client:
        ref = parse_ref(version)
        deleted = client.delete_version(*ref)
        _print(as_json, deleted, lambda: tables.say(f"{ref} is deleted"))


@app.command()
def scale(
    name: str,
    least: Annotated[int | None, typer.Option("--min", help="Replicas kept even without calls.")] = None,
    most: Annotated[int | None, typer.Option("--max", help="Replicas at most.")] = None,
    target: Annotated[float | None, typer.Option(help="Calls in flight that one replica should have.")] = None,
    idle_s: Annotated[float | None, typer.Option(help="Seconds without a call before the last replica goes.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Let the versions' own scale hold again.")] = False,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Show or override a function's scale, for all its versions, now and after any deploy."""
    asked = {"min": least, "max": most, "target": target, "idle_s": idle_s}
    given = {key: value for key, value in asked.items() if value is not None}
    with _exits(), _client(url) as client:
        if reset and given:
            raise typer.BadParameter("--reset excludes the other options")
        if reset:
            client.clear_scale(name)
        elif given:
            client.put_scale(name, {**client.scale(name), **given})
        found = client.scale(name)
        words = ", ".join(f"{key} = {value}" for key, value in found.items()) or "the versions' own"
        _print(as_json, found, lambda: tables.say(f"{name}: {words}"))


@app.command()
def logs(
    name: str,
    version: Annotated[str | None, typer.Option(help="A version or a tag; default live.")] = None,
    lines: Annotated[int, typer.Option(min=1, max=10_000)] = 100,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Show what a version's replicas wrote last."""
    with _exits(), _client(url) as client:
        found = client.logs(name, version, lines)
        shown = tables.plain if sys.stdout.isatty() else str
        _print(as_json, found, lambda: sys.stdout.writelines(f"{shown(line)}\n" for line in found["lines"]))


def main() -> None:
    app()


def _client(url: str) -> Client:
    ca = os.environ.get("DESPINA_CA_FILE")
    return Client(url, os.environ.get("DESPINA_ADMIN_TOKEN"), Path(ca) if ca else None)


@contextmanager
def _exits() -> Iterator[None]:
    """Turns what went wrong into one line and an exit code."""
    try:
        yield
    except DespinaError as error:
        hint = "; set DESPINA_ADMIN_TOKEN to the server's token" if isinstance(error, Unauthorized) else ""
        sys.stderr.write(f"despina: {tables.plain(error)}{hint}\n")
        raise typer.Exit(1) from None
    except ServerUnreachable as error:
        sys.stderr.write(f"despina: {tables.plain(error)}\n")
        raise typer.Exit(2) from None


def _stop(data: Path) -> int:
    """The pid of the platform that was ended and is gone, lock and process. Raises NotFound, Forbidden, DeadlineExceeded."""
    pid = owner_of(data)
    try:
        process = os.pidfd_open(pid)  # From here on the number cannot come to mean another process.
    except ProcessLookupError:
        raise NotFound(f"no despina up runs on {data}") from None
    try:
        if owner_of(data) != pid:
            raise NotFound(f"no despina up runs on {data}")
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], GONE_S)[0]:
            raise DeadlineExceeded(f"pid {pid} has not stopped within {GONE_S:g} s; see its logs, or kill -9 it")
    except PermissionError:
        raise Forbidden(f"the despina up of {data} (pid {pid}) is another user's") from None
    finally:
        os.close(process)
    return pid


@contextmanager
def _moving(client: Client, name: str, tag: str) -> Iterator[int | None]:
    """Where the tag points before it is moved; what then refuses the move is told with that it is still there."""
    before = client.pointed(name, tag)
    try:
        yield before
    except (AuthorError, CapacityError, Conflict) as error:
        raise type(error)(f"{outcomes.moved(name, tag, before, before)}: {error}") from None


def _page(client: Client, name: str) -> dict[str, Any]:
    """All that is shown of a function; inputs, outputs and the scale are those of what live points at, or else of the newest version."""
    found = client.function(name)
    shown = found["tags"][LIVE]["version"] if LIVE in found["tags"] else found["versions"][0]["version"]
    metadata, record = client.metadata(name, str(shown)), client.version(name, shown)
    return {
        **found,
        "shown": shown,
        "inputs": metadata["inputs"],
        "outputs": metadata["outputs"],
        "effective_scale": {**record["manifest"]["scale"], **found["scale"]},
        "history": client.history(name),
        "replicas": client.replicas(name),
    }


def _inputs(metadata: Mapping[str, Any], image: Path | None, json_file: Path | None, inputs: Sequence[str] | None) -> list[Tensor]:
    from gateway import invoke as invoking

    if image is not None:
        return invoking.from_image(metadata, _read(image))
    if json_file is not None:
        data = sys.stdin.buffer.read() if str(json_file) == "-" else _read(json_file)
        return invoking.from_request(metadata, invoking.parsed(data, str(json_file)))
    return invoking.from_typed(metadata, inputs or ())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None


def _number(text: str, tags: Mapping[str, Any]) -> int:
    """A version as typed: a number, or a tag's name."""
    if text in tags:
        return int(tags[text]["version"])
    if not (text.isascii() and text.isdigit()):
        raise NotFound(f"{text!r} is neither a version nor one of its tags: {', '.join(tags) or 'it has none'}")
    return int(text)


def _print(as_json: bool, value: Any, shown: Callable[[], object]) -> None:
    if as_json:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    else:
        shown()


def _succeed(result: Mapping[str, Any]) -> None:
    """Raises Conflict when the tags of a deploy should have moved and did not."""
    if result["promotion"]["state"] not in ("moved", "skipped"):
        raise Conflict(outcomes.refused(result))
