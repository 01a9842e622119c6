from __future__ import annotations

from pathlib import Path

import pytest

from functions.errors import InvalidRequest
from gateway.client import Client, ServerUnreachable
from tests.gateway.server import certificate, serving


def test_a_server_that_is_not_trusted_is_told_with_the_setting_that_makes_it_so(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with serving(cert=(cert, key)) as served:
        url = f"https://localhost:{served.port}"
        with Client(url) as client, pytest.raises(ServerUnreachable, match="DESPINA_CA_FILE"):
            client.functions()
        with Client(url, ca=cert) as client, pytest.raises(Exception, match="Not Found"):
            client.functions()


def test_what_is_no_function_name_is_refused_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:1") as client:
        for call in (client.function, client.metadata, client.replicas, client.scale):
            with pytest.raises(InvalidRequest, match="'a/b' is not a function name"):
                call("a/b")
