"""The tables of README.md against what they speak of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from functions.manifest import Call, Manifest
from gateway.settings import Settings

README = Path(__file__).parents[2] / "README.md"


def rows() -> dict[str, str]:
    """First cell → the whole row."""
    lines = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    return {re.findall(r"`([^`]+)`", line)[0]: line for line in lines}


def test_every_key_of_function_toml_is_in_the_readme_with_its_default() -> None:
    known = {key: text for key, text in rows().items() if re.match(r"(scale|calls|limits|retry|env|permissions)\.", key)}
    sections: dict[str, type[BaseModel]] = {key: type(field.default) for key, field in Manifest.model_fields.items() if key != "calls"}
    sections["calls.CALLEE"] = Call
    fields = {f"{section}.{key}": field.default for section, model in sections.items() for key, field in model.model_fields.items()}

    assert fields.keys() == known.keys()
    for key, default in fields.items():
        if default not in (None, []):
            assert f"| {str(default).lower() if isinstance(default, bool) else f'{default:g}'} |" in known[key], key


def test_every_setting_is_in_the_readme() -> None:
    named = set(re.findall(r"`(?:DESPINA_)?([A-Z_]+)`", rows()["DESPINA_<FIELD>"] + rows()["DESPINA_ADMIN_TOKEN"]))

    assert {key.upper() for key in Settings.model_fields if key != "http"} == named


@pytest.mark.parametrize("name", ["DESPINA_URL", "DESPINA_ADMIN_TOKEN", "DESPINA_CA_FILE", "DESPINA_<FIELD>", "DESPINA_HTTP_<FIELD>"])
def test_variables_have_a_row(name: str) -> None:
    assert name in rows()
