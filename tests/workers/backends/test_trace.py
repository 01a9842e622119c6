import pytest

from workers.backends.trace import told


def test_the_frames_begin_with_the_innermost_and_end_at_the_authors_outermost(tmp_path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def inner():\n    raise ValueError('boom')\ndef execute():\n    inner()\n")
    space: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)

    with pytest.raises(ValueError, match="boom") as caught:
        space["execute"]()  # type: ignore[operator]

    assert f"ValueError: boom\n\nAt:\n  {file}(2): inner\n  {file}(4): execute\n" == told(caught.value, f"{tmp_path}/")


def test_an_error_that_passed_no_line_of_the_author_has_no_list() -> None:
    assert "TypeError: takes 1 positional argument" == told(TypeError("takes 1 positional argument"), "/nowhere/")
