from __future__ import annotations

import os
from pathlib import Path

import pytest

from functions.errors import Conflict, InvalidRequest, NotFound
from gateway.place import Place, owner_of


def test_one_process_owns_a_data_directory_until_it_closes(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")

    assert os.getpid() == owner_of(tmp_path / "data")

    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        Place(tmp_path / "data")
    place.close()

    with pytest.raises(NotFound):
        owner_of(tmp_path / "data")
    Place(tmp_path / "data").close()


def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be used"):
        Place(tmp_path / "file" / "data")


def test_nobody_owns_what_was_never_used(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        owner_of(tmp_path)


def test_sockets_have_room_for_their_names_however_long_the_path(tmp_path: Path) -> None:
    place = Place(tmp_path / ("d" * 90))
    again = place.run
    place.close()

    assert len(os.fsencode(again)) <= 60
    assert again.stat().st_mode & 0o777 == 0o700

    second = Place(tmp_path / ("d" * 90))
    second.close()

    assert again == second.run, "the same each time, so that what an earlier run left is found"
