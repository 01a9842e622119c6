"""Every setting of ``despina up``: one frozen type, each field with its unit, its default and its sentence.

Options of the command win over ``DESPINA_<FIELD>`` (``DESPINA_HTTP_<FIELD>`` for the limits of the HTTP server), which win over
the defaults. It is read once, by the parent; every process gets the part it needs as JSON on its standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from functions.errors import InvalidRequest

PREFIX = "DESPINA_"
NOT_SETTINGS = frozenset({"DESPINA_URL", "DESPINA_CA_FILE", "DESPINA_INSTANCE"})
"""Variables with the prefix that are no settings: the client's server, and the mark by which a guard finds an instance's processes."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class HttpLimits(BaseModel):
    """What one HTTP connection may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_alive_s: float = Field(default=75.0, gt=0, description="Seconds an idle connection is kept.")
    header_s: float = Field(default=10.0, gt=0, description="Seconds a client has for one request's line and headers.")
    body_s: float = Field(default=30.0, gt=0, description="Seconds a client has for a body, besides what body_bytes_per_s allows.")
    body_bytes_per_s: int = Field(
        default=16_384, ge=1, description="Bytes per second under which a client counts as a slow sender, after body_s."
    )
    send_s: float = Field(default=60.0, gt=0, description="Seconds a client may take no byte of its replies before it is cut off.")
    linger_s: float = Field(
        default=2.0, ge=0, description="Seconds a refused body is read and thrown away, so that the client can read why."
    )
    header_count: int = Field(default=100, ge=1, description="Most headers of one request.")
    header_bytes: int = Field(default=65_536, ge=256, description="Most bytes of one request's line and headers.")
    json_mb: int = Field(default=64, ge=1, description="Most MiB of one infer request's JSON.")
    bodies_mb: int = Field(default=4096, ge=1, description="Most MiB of infer bodies held at once, all connections together.")
    pipelined: int = Field(default=16, ge=1, description="Requests of one connection that may be unanswered before it is no longer read.")
    write_buffer_kb: int = Field(
        default=1024, ge=1, description="KiB of replies a client may leave unread before its connection is no longer read."
    )
    connections: int = Field(default=10_000, ge=1, description="Most connections at once.")


class Settings(BaseModel):
    """``despina up``, whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path = Field(description="Directory that holds everything this machine keeps; made when missing.")
    store: str = Field(default="", description="URL of the store of versions and tags; empty: file:// under the data directory.")
    board: str = Field(default="", description="redis:// URL of the board; empty: a server of our own on a unix socket.")
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on. Anything but loopback needs admin_token.")
    http_port: int = Field(default=8000, ge=0, le=65535, description="Port of the HTTP interface; 0: a free one.")
    metrics_port: int = Field(default=8002, ge=0, le=65535, description="Port of the metrics; 0: a free one.")
    tls_cert: Path | None = Field(default=None, description="PEM file with the certificate chain; with tls_key it turns HTTP into HTTPS.")
    tls_key: Path | None = Field(default=None, description="PEM file with the private key of tls_cert.")
    hosts: tuple[str, ...] = Field(default=(), description="Further host names by which clients may call routes that change things.")
    admin_token: SecretStr | None = Field(default=None, description="Bearer token that every route that changes something asks for.")
    upload_mb: int = Field(default=10_240, ge=1, description="Most MiB of one upload, packed and unpacked.")
    drain_s: float = Field(default=30.0, gt=0, description="Seconds that running requests get when the platform stops.")
    http: HttpLimits = Field(default_factory=lambda: HttpLimits(), description="Limits of the HTTP server.")

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if self.host not in LOOPBACK and self.admin_token is None:
            raise ValueError(
                f"host {self.host} is not loopback: set {PREFIX}ADMIN_TOKEN, which every route that changes something will ask for"
            )
        if self.admin_token is not None and len(self.admin_token.get_secret_value()) < 8:
            raise ValueError(f"{PREFIX}ADMIN_TOKEN is shorter than 8 characters")
        return self

    @property
    def store_url(self) -> str:
        return self.store or f"file://{self.data.absolute()}/store"

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"


def load(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from the command's ``options`` (None = not given) and the environment.

    Raises InvalidRequest naming each wrong key, its value and what it may be; an unknown ``DESPINA_`` variable is refused too."""
    values: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        key = name.removeprefix(PREFIX).lower()
        if key in Settings.model_fields and key != "http":
            values[key] = [part for part in text.split(",") if part] if key == "hosts" else text
        elif key.startswith("http_") and key.removeprefix("http_") in HttpLimits.model_fields:
            limits[key.removeprefix("http_")] = text
        else:
            raise InvalidRequest(f"the environment sets {name}, which is not a setting")
    values.update({key: value for key, value in options.items() if value is not None})
    values.setdefault("data", default_data_dir(environment))
    try:
        return Settings(**values, http=HttpLimits(**limits))
    except ValidationError as error:
        raise InvalidRequest("; ".join(_sentence(fault) for fault in error.errors())) from None


def default_data_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where state lies when nobody says: ``despina`` in the user's state directory (XDG)."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".local" / "state"
    return base / "despina"


def _sentence(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    reason = fault["msg"].removeprefix("Value error, ")
    if not key or "token" in key:
        return f"{key}: {reason}" if key else reason
    return f"{key} = {fault['input']!r}: {reason}"
