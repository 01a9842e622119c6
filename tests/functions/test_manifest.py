"""function.toml: defaults, refusals with line and key, and what is not available yet."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions import manifest
from functions.errors import BundleRefused

DEFAULTS: dict[str, Any] = {
    "scale": {"min": 0, "max": None, "target": None, "idle_s": 60.0, "snapshot": False},
    "calls": {},
    "limits": {"timeout_s": 300.0, "kill_s": 330.0, "queue": 1000, "body_mb": 1024, "rate": None},
    "retry": {"idempotent": False},
    "env": {"requirements": []},
    "permissions": {"repository": False},
}


@pytest.mark.parametrize("text", ["", "# nothing", "[scale]", "[env]\nrequirements = []", "[permissions]\nrepository = false"])
def test_everything_has_a_default(text: str) -> None:
    assert manifest.parse(text).to_json() == DEFAULTS


CHANGED: list[tuple[str, str, Any]] = [
    ("[scale]\nmin = 1\nmax = 4", "scale.max", 4),
    ("scale.min = 2", "scale.min", 2),
    ("scale = { target = 3 }", "scale.target", 3.0),
    ("[scale]\nidle_s = 0", "scale.idle_s", 0.0),
    ("[limits]\ntimeout_s = 2", "limits.kill_s", 32.0),
    ("[limits]\nkill_s = 5.5", "limits.kill_s", 5.5),
    ("[limits]\nqueue = 1", "limits.queue", 1),
    ("[limits]\nbody_mb = 16", "limits.body_mb", 16),
    ("[retry]\nidempotent = true", "retry.idempotent", True),
    ("[limits]\nrate = 3.5", "limits.rate", 3.5),
    ("[calls]\na = { shared = true }", "calls.a", {"version": None, "tag": None, "shared": True}),
    ("[calls]\na = {}", "calls.a", {"version": None, "tag": None, "shared": False}),
    ("[calls]\na = { version = 3 }", "calls.a", {"version": 3, "tag": None, "shared": False}),
    ('[calls.a]\ntag = "canary"', "calls.a", {"version": None, "tag": "canary", "shared": False}),
]


@pytest.mark.parametrize(("text", "path", "expected"), CHANGED)
def test_what_is_written_counts(text: str, path: str, expected: Any) -> None:
    value: Any = manifest.parse(text).to_json()
    for key in path.split("."):
        value = value[key]

    assert expected == value


REFUSED = [
    ("x = 1", ":1: x", "unknown key 'x'; the keys here are: scale, calls, limits, retry, env, permissions"),
    ("[scale]\nmin = 1\nmxa = 3", ":3: scale.mxa", "did you mean 'max'?"),
    ("[scales]\nmin = 1", ":1: scales", "did you mean 'scale'?"),
    ("[limits]\n\n# c\ntimeout = 3", ":4: limits.timeout", "did you mean 'timeout_s'?"),
    ("[calls]\na = { versoin = 3 }", ":2: calls.a.versoin", "did you mean 'version'?"),
    ("[scale]\nmin = 3\nmax = 2", ":1: scale", "max is 2, less than min, which is 3"),
    ('[scale]\nmin = "1"', ":2: scale.min", "'1' is refused; input should be a valid integer"),
    ("[scale]\nmin = true", ":2: scale.min", "True is refused"),
    ("[scale]\nmin = 1.0", ":2: scale.min", "1.0 is refused"),
    ("[scale]\nmin = -1", ":2: scale.min", "greater than or equal to 0"),
    ("[scale]\nmax = 0", ":2: scale.max", "greater than or equal to 1"),
    ("[scale]\ntarget = 0", ":2: scale.target", "greater than 0"),
    ("[scale]\nidle_s = inf", ":2: scale.idle_s", "finite"),
    ("[scale]\nidle_s = nan", ":2: scale.idle_s", "finite"),
    ("[limits]\ntimeout_s = 0", ":2: limits.timeout_s", "greater than 0"),
    ("[limits]\ntimeout_s = 1e9", ":2: limits.timeout_s", "less than or equal to 86400"),
    ("[limits]\nqueue = 0", ":2: limits.queue", "greater than or equal to 1"),
    ("[limits]\nbody_mb = 1025", ":2: limits.body_mb", "less than or equal to 1024"),
    ("[retry]\nidempotent = 1", ":2: retry.idempotent", "valid boolean"),
    ('[calls]\na = { version = 3, tag = "x" }', ":2: calls.a", "write version or tag, not both"),
    ("[calls]\na = { version = 0 }", ":2: calls.a.version", "greater than or equal to 1"),
    ('[calls]\na = { tag = "../x" }', ":2: calls.a.tag", "'../x' is not a tag"),
    ("[calls]\na = 3", ":2: calls.a", "3 is refused"),
    ('[calls]\n"a b" = {}', ":1: calls", "'a b' is not a function name"),
    ("scale = 3", ":1: scale", "3 is refused"),
    ("[env]\nrequirements = 'x'", ":2: env.requirements", "valid list"),
    ("a = [", "", "not TOML"),
    ("a = 1\na = 2", "", "not TOML"),
    ("x = " + "[" * 5000, "", "not TOML"),
]


@pytest.mark.parametrize(("text", "field", "message"), REFUSED)
def test_a_refusal_names_line_key_and_fix(text: str, field: str, message: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        manifest.parse(text)

    assert f"function.toml{field}" == caught.value.field
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[scale]\nsnapshot = true", ":2: scale.snapshot"),
        ('[env]\nrequirements = ["numpy"]', ":2: env.requirements"),
        ("[permissions]\nrepository = true", ":2: permissions.repository"),
    ],
)
def test_what_is_not_available_yet_is_refused_not_ignored(text: str, field: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        manifest.parse(text)

    assert f"function.toml{field}: not available yet; remove it" == str(caught.value)


def test_a_file_over_the_limit_is_refused() -> None:
    with pytest.raises(BundleRefused, match="the limit is"):
        manifest.parse("#" * (manifest.MAX_CHARACTERS + 1))


@given(st.text(alphabet=st.sampled_from("[]{}=.,\"'# \nscalemin01_-"), max_size=60))
def test_no_text_whatever_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(BundleRefused):
        manifest.parse(text)
