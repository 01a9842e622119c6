"""A small client of the public HTTP interface. What the command line does, anybody can do with these routes."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import quote

import httpx

from functions.errors import DespinaError, NotFound, tree
from functions.names import function_name
from functions.records import File
from workers.fleet.promotion import Dependents

CHUNK = 256 * 1024
ANSWER_S = 60.0
"""How long an answer may take that waits for nothing."""
INSPECT_S = 180.0
"""How long one may take that waits for a bundle to be inspected and recorded."""
SLACK_S = 30.0
"""So much longer than what a request itself may wait does the client."""
_UNTRUSTED = "set DESPINA_CA_FILE to a PEM file with the certificate of the server, or of who signed it"
_KINDS = {kind.code: kind for kind in tree()}


class ServerUnreachable(Exception):
    """Nobody answers at this URL, or not in HTTP, or not in time."""


class Progress(Protocol):
    """Told how many bytes of an upload have gone out."""

    def __call__(self, size_bytes: int) -> None: ...


class Client:
    """One server. Every method raises the DespinaError that the server answered, InvalidRequest for what is no function name, or
    ServerUnreachable."""

    def __init__(self, url: str, token: str | None = None, ca: Path | None = None) -> None:
        """``ca`` is a PEM file with the certificates to trust for https, instead of the system's; whom they name is not checked
        then, since a server's own certificate may be all there is. Raises ServerUnreachable for one that cannot be read."""
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        verify = True if ca is None else _trusting(ca)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=ANSWER_S, verify=verify, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    # Looking

    def functions(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "/v1/functions")["functions"])

    def function(self, name: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/functions/{_name(name)}")

    def version(self, name: str, version: int) -> dict[str, Any]:
        return self._json("GET", f"/v1/functions/{_name(name)}/versions/{version}")

    def replicas(self, name: str) -> list[dict[str, Any]]:
        return list(self._json("GET", f"/v1/functions/{_name(name)}/replicas")["replicas"])

    def logs(self, name: str, version: str | None, lines: int) -> dict[str, Any]:
        return self._selected(name, version, f"/v1/functions/{_name(name)}/logs", params=_given(version=version, lines=lines))

    def history(self, name: str) -> list[dict[str, Any]]:
        """All moves of its tags, the newest first."""
        return list(self._json("GET", f"/v1/functions/{_name(name)}/history")["history"])

    def tag(self, name: str, tag: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/functions/{_name(name)}/tags/{_part(tag)}")

    def pointed(self, name: str, tag: str) -> int | None:
        """The version a tag points at; None where there is no such tag."""
        try:
            return int(self.tag(name, tag)["version"])
        except NotFound:
            return None

    def metadata(self, name: str, selector: str | None = None) -> dict[str, Any]:
        """Names, types and shapes."""
        return self._selected(name, selector, _model(name, selector))

    def config(self, name: str, selector: str | None = None) -> dict[str, Any]:
        return self._json("GET", f"{_model(name, selector)}/config")

    # Publishing

    def missing(self, sizes: Mapping[str, int]) -> list[str]:
        """Of blobs by sha256 and size, those the server lacks."""
        return list(self._json("POST", "/v1/blobs/missing", json=dict(sizes))["missing"])

    def put_blob(self, sha256: str, path: Path, progress: Progress) -> None:
        with path.open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(path.stat().st_size)}
            self._json("PUT", f"/v1/blobs/{sha256}", content=_pieces(file, progress), headers=headers)

    def record(self, name: str, files: Mapping[str, File], with_: Mapping[str, int]) -> dict[str, Any]:
        """Record a version from blobs that the server has; no tag moves. ``with_`` are the versions of callees to lock."""
        query = {"promote": "false", "with": ",".join(f"{callee}@{version}" for callee, version in with_.items())}
        body = {"files": {path: list(file) for path, file in files.items()}}
        return self._json("POST", f"/v1/functions/{_name(name)}/versions", params=query, json=body, timeout=INSPECT_S)

    def delete_version(self, name: str, version: int) -> dict[str, Any]:
        return self._json("DELETE", f"/v1/functions/{_name(name)}/versions/{version}")

    def release(self, moves: Mapping[str, int], tag: str, dependents: Dependents, wait_s: float) -> dict[str, Any]:
        """Move one tag of several functions together."""
        body = {"moves": dict(moves), "tag": tag, "dependents": dependents, "wait": wait_s}
        return self._json("POST", "/v1/releases", json=body, timeout=wait_s + SLACK_S)

    def move(self, name: str, tag: str, version: int, dependents: Dependents, wait_s: float) -> dict[str, Any]:
        query = {"dependents": dependents, "wait": wait_s}
        path = f"/v1/functions/{_name(name)}/tags/{_part(tag)}"
        return self._json("PUT", path, params=query, json={"version": version}, timeout=wait_s + SLACK_S)

    def rollback(self, name: str, to: int | str | None, tag: str, dependents: Dependents, wait_s: float) -> dict[str, Any]:
        query = {"dependents": dependents, "wait": wait_s}
        path = f"/v1/functions/{_name(name)}/rollback"
        return self._json("POST", path, params=query, json={**_given(to=to), "tag": tag}, timeout=wait_s + SLACK_S)

    def scale(self, name: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/functions/{_name(name)}/scale")

    def put_scale(self, name: str, scale: Mapping[str, Any]) -> dict[str, Any]:
        return self._json("PUT", f"/v1/functions/{_name(name)}/scale", json=dict(scale))

    def clear_scale(self, name: str) -> dict[str, Any]:
        return self._json("DELETE", f"/v1/functions/{_name(name)}/scale")

    # Calling

    def infer(self, name: str, selector: str | None, body: bytes, header_length: int | None, timeout_s: float) -> httpx.Response:
        """Send a v2 infer body; ``header_length`` is None where all of it is JSON. The answer's status is 200."""
        headers = {} if header_length is None else {"Inference-Header-Content-Length": str(header_length)}
        headers["Despina-Timeout-Us"] = str(round(timeout_s * 1e6))
        return self._send("POST", f"{_model(name, selector)}/infer", content=body, headers=headers, timeout=timeout_s + SLACK_S)

    def _selected(self, name: str, selector: str | None, path: str, **options: Any) -> dict[str, Any]:
        """Look at one version. Raises NotFound that says what there is not: the function, the version or the tag."""
        try:
            return self._json("GET", path, **options)
        except NotFound:
            if selector is not None and not selector.isdigit():
                self.tag(name, selector)
            raise

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._send(method, path, **options)
        try:
            found: dict[str, Any] = response.json()
        except ValueError:
            raise ServerUnreachable(f"{self.url}{path} does not answer in JSON; is that a Despina server?") from None
        return found

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            hint = f"; {_UNTRUSTED}" if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
            raise ServerUnreachable(f"no answer from {self.url}: {error or type(error).__name__}{hint}") from None
        if response.is_success:
            return response
        raise _error(response)


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ServerUnreachable(f"{ca} holds no certificates: {error}") from None
    context.check_hostname = False
    return context


def _error(response: httpx.Response) -> DespinaError:
    """The error that the server answered, as the class of its code."""
    try:
        message = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        message = response.text[:500] or f"HTTP status {response.status_code}"
    return _KINDS.get(response.headers.get("Despina-Error", ""), DespinaError)(message)


def _pieces(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece
        progress(len(piece))


def _name(text: str) -> str:
    """A function's name as part of a path. Raises InvalidRequest for what is none: a server would answer of the path instead."""
    return _part(function_name(text))


def _part(text: str) -> str:
    return quote(text, safe="")


def _model(name: str, selector: str | None) -> str:
    path = f"/v2/models/{_name(name)}"
    return path if selector is None else f"{path}/versions/{_part(selector)}"


def _given(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
