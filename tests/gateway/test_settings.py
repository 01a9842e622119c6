from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from functions.errors import InvalidRequest
from gateway.settings import HttpLimits, Settings, default_data_dir, load


@pytest.mark.parametrize("model", [Settings, HttpLimits])
def test_every_setting_has_a_sentence(model: type[BaseModel]) -> None:
    assert all((field.description or "").endswith(".") for field in model.model_fields.values())


def test_an_option_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"DESPINA_HTTP_PORT": "9000", "DESPINA_METRICS_PORT": "9002", "DESPINA_HTTP_KEEP_ALIVE_S": "5", "HOME": "/home/x"}
    settings = load({"http_port": 7000, "host": None}, environment)

    assert (7000, 9002, "127.0.0.1", 5.0) == (settings.http_port, settings.metrics_port, settings.host, settings.http.keep_alive_s)


@pytest.mark.parametrize(
    ("options", "environment", "says"),
    [
        ({}, {"DESPINA_TYPO": "1"}, "DESPINA_TYPO"),
        ({}, {"DESPINA_HTTP_TYPO": "1"}, "DESPINA_HTTP_TYPO"),
        ({"http_port": 70_000}, {}, "http_port = 70000"),
        ({}, {"DESPINA_HTTP_HEADER_S": "-1"}, "header_s"),
        ({"host": "0.0.0.0"}, {}, "DESPINA_ADMIN_TOKEN"),
        ({"host": "0.0.0.0"}, {"DESPINA_ADMIN_TOKEN": "short"}, "DESPINA_ADMIN_TOKEN"),
        ({"tls_cert": Path("c.pem")}, {}, "tls_key"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, object], environment: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        load(options, {"HOME": "/home/x", **environment})


def test_a_bind_beyond_loopback_is_allowed_with_a_token() -> None:
    assert "0.0.0.0" == load({"host": "0.0.0.0"}, {"DESPINA_ADMIN_TOKEN": "long enough", "HOME": "/"}).host


def test_a_secret_is_not_printed() -> None:
    settings = load({}, {"DESPINA_ADMIN_TOKEN": "long enough", "HOME": "/"})

    assert "long enough" not in repr(settings)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/x"}, "/state/despina"),
        ({"HOME": "/home/x"}, "/home/x/.local/state/despina"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/x"}, "/home/x/.local/state/despina"),
    ],
)
def test_without_a_word_data_lies_in_the_users_state_directory(environment: dict[str, str], expected: str) -> None:
    assert Path(expected) == default_data_dir(environment)
