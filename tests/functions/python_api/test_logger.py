from __future__ import annotations

import re

import pytest

from functions.python_api.logger import Logger


@pytest.mark.parametrize(("method", "letter"), [(Logger.log_info, "I"), (Logger.log_warn, "W"), (Logger.log_error, "E"), (Logger.log, "I")])
def test_a_line_names_its_level_and_where_it_comes_from(capsys: pytest.CaptureFixture[str], method: object, letter: str) -> None:
    method("hello")  # type: ignore[operator]

    assert re.fullmatch(rf"{letter} test_logger\.py:\d+\] hello\n", capsys.readouterr().err)


def test_the_level_can_be_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    Logger.log("oops", Logger.ERROR)

    assert capsys.readouterr().err.startswith("E test_logger.py:")


def test_verbose_lines_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    Logger.log_verbose("quiet")

    assert "" == capsys.readouterr().err
