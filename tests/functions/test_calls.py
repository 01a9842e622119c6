"""Whom a bundle calls: steps, [calls], literals in source."""

from __future__ import annotations

from typing import Any

import pytest

from functions import manifest
from functions.calls import MAX_SOURCE, CallDecl, declared_calls
from functions.errors import BundleRefused

PYTHON: dict[str, Any] = {"name": "f", "backend": "python", "default_model_filename": "model.py"}


def ensemble(*steps: tuple[str, int]) -> dict[str, Any]:
    return {
        "name": "f",
        "backend": "",
        "platform": "ensemble",
        "default_model_filename": "",
        "ensemble_scheduling": {"step": [{"model_name": name, "model_version": version} for name, version in steps]},
    }


def calls(config: dict[str, Any], toml: str = "", **sources: str | bytes) -> tuple[dict[str, CallDecl], tuple[str, ...]]:
    return declared_calls(config, manifest.parse(toml).to_json(), {f"1/{name}.py": text for name, text in sources.items()})


def source(*words: str) -> str:
    return "".join(f"import pb\npb.InferenceRequest({word}, inputs=[])\n" for word in words)


def test_a_bundle_that_calls_nobody_has_no_callees() -> None:
    assert calls(PYTHON, model="x = 1") == ({}, ())


@pytest.mark.parametrize(
    ("version", "expected"),
    [(-1, CallDecl("live", None)), (0, CallDecl("live", None)), (3, CallDecl(None, 3))],
)
def test_a_step_follows_live_unless_it_names_a_version(version: int, expected: CallDecl) -> None:
    assert calls(ensemble(("a", version), ("b", -1))) == ({"a": expected, "b": CallDecl()}, ())


def test_a_callee_of_two_steps_is_locked_once() -> None:
    assert calls(ensemble(("a", -1), ("a", 0)))[0] == {"a": CallDecl()}


@pytest.mark.parametrize("versions", [(2, 3), (2, -1), (0, 2)])
def test_two_steps_cannot_call_two_versions(versions: tuple[int, int]) -> None:
    with pytest.raises(BundleRefused) as caught:
        calls(ensemble(*(("a", version) for version in versions)))

    assert caught.value.field == "config.pbtxt: ensemble_scheduling.step[1].model_version"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{}", CallDecl("live", None, via="manifest")),
        ('{ tag = "canary" }', CallDecl("canary", None, via="manifest")),
        ("{ version = 7 }", CallDecl(None, 7, via="manifest")),
    ],
)
def test_the_manifest_declares_callees_and_has_the_last_word(entry: str, expected: CallDecl) -> None:
    toml = f"[calls]\na = {entry}"

    assert calls(PYTHON, toml) == ({"a": expected}, ())
    assert calls(PYTHON, toml, model=source('model_name="a"')) == ({"a": expected}, ())
    assert calls(ensemble(("a", -1)), toml) == ({"a": expected}, ())


def test_the_manifest_cannot_contradict_a_pinned_step() -> None:
    assert calls(ensemble(("a", 3)), "[calls]\na = { version = 3 }")[0] == {"a": CallDecl(None, 3, via="manifest")}
    for entry in ("{}", "{ version = 4 }", '{ tag = "x" }'):
        with pytest.raises(BundleRefused, match="wants version 3"):
            calls(ensemble(("a", 3)), f"[calls]\na = {entry}")


def test_a_call_to_itself_is_not_declared() -> None:
    assert calls(PYTHON, model=source('model_name="f"')) == ({}, ())
    with pytest.raises(BundleRefused, match="'f' is this function"):
        calls(PYTHON, "[calls]\nf = {}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (['model_name="a"'], CallDecl("live", None, via="source")),
        (["model_name='a'", 'model_name="a"'], CallDecl("live", None, via="source")),
        (['model_name="a", model_version=-1'], CallDecl("live", None, via="source")),
        (['model_name="a", model_version=v'], CallDecl("live", None, via="source")),
        (['model_name="a", model_version=3'], CallDecl(None, 3, via="source")),
        (['model_name="a", model_version=True'], CallDecl("live", None, via="source")),
    ],
)
def test_a_literal_in_the_source_is_found_and_reported(words: list[str], expected: CallDecl) -> None:
    found, notes = calls(PYTHON, model=source(*words))

    assert {"a": expected} == found
    assert notes == ("a: found in the source only; declare it in [calls] of function.toml",)


@pytest.mark.parametrize(
    "text",
    [
        'from pb import InferenceRequest\nInferenceRequest(model_name="a")',
        'def f():\n  async def g():\n    return await x.y.InferenceRequest(model_name="a").async_exec()',
        'lambda: pb.InferenceRequest(inputs=[], **{}, model_name="a")',
        'class C:\n  r = [pb.InferenceRequest(model_name="a") for _ in "x"]',
    ],
)
def test_a_literal_is_found_wherever_it_stands(text: str) -> None:
    assert list(calls(PYTHON, model=text)[0]) == ["a"]


def test_a_literal_is_found_in_other_files_too() -> None:
    assert list(calls(PYTHON, model="import helper", helper=source('model_name="a"'))[0]) == ["a"]


def test_two_literal_versions_lock_the_tag_and_say_so() -> None:
    found, notes = calls(PYTHON, model=source('model_name="a", model_version=2', 'model_name="a", model_version=3'))

    assert found == {"a": CallDecl(via="source")}
    assert "called in several versions" in notes[0]


@pytest.mark.parametrize(
    "word", ["model_name=name", 'model_name="a" + x', 'model_name=f"{a}"', 'model_name="a/b"', "model_name=3", "**words"]
)
def test_a_name_known_only_at_run_time_is_reported_with_its_line(word: str) -> None:
    found, notes = calls(PYTHON, model=source(word))

    assert found == {}
    assert notes == ("1/model.py:2: calls a function whose name is only known when it runs; declare it in [calls] of function.toml",)


@pytest.mark.parametrize("text", ['other(model_name="a")', "\"InferenceRequest(model_name='a')\"", '# InferenceRequest(model_name="a")'])
def test_what_only_looks_like_a_call_is_none(text: str) -> None:
    assert calls(PYTHON, model=text) == ({}, ())


BROKEN: list[tuple[str | bytes, str, str]] = [
    ("x = 1\ndef f(:\n", ":2", "invalid syntax"),
    ("return 3", ":1", "'return' outside function"),
    ("def f():\n  x = 1\n y = 2", ":3", "unindent"),
    ("x = '\0'", "", "null bytes"),
    (b"# -*- coding: nonsense -*-\n", "", "nonsense"),
    (b"x = '\xff'\n", "", "decode"),
    ("(" * 1000 + ")" * 1000, "", "too many nested"),
    ("x = " + "-" * 200_000 + "1", "", ""),
    (" " * (MAX_SOURCE + 1), "", "longer than"),
]


@pytest.mark.parametrize(("text", "line", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_model_that_does_not_compile_is_refused_with_its_line(text: str | bytes, line: str, message: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        calls(PYTHON, model=text)

    assert caught.value.field.startswith(f"1/model.py{line}")
    assert message in str(caught.value)


def test_another_file_that_does_not_compile_is_only_reported() -> None:
    found, notes = calls(PYTHON, model="x = 1", old="print 'python 2'")

    assert found == {}
    assert notes[0].startswith("1/old.py:1: not read for calls")


def test_the_files_own_encoding_counts() -> None:
    assert calls(PYTHON, model="# coding: latin-1\nx = 'é'\n".encode("latin-1")) == ({}, ())


def test_a_doubtful_escape_in_a_models_string_is_its_own_affair() -> None:
    assert calls(PYTHON, model=r"x = '\d'") == ({}, ())


def test_python_files_of_a_bundle_that_runs_no_python_are_not_read() -> None:
    onnx = {"name": "f", "backend": "onnxruntime", "default_model_filename": "model.onnx"}

    assert calls(onnx, export="return") == ({}, ())
