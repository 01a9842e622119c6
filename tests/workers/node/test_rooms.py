from __future__ import annotations

from pathlib import Path

import pytest

from functions.errors import InvalidRequest
from workers.node.rooms import Rooms


def test_only_what_is_listed_passes_into_a_replicas_environment(short: Path) -> None:
    rooms = Rooms(short, {"DESPINA_INSTANCE": "t"}, 5.0, {"PATH": "/bin", "TZ": "UTC", "AWS_SECRET": "s", "DESPINA_ADMIN_TOKEN": "s"})
    place = rooms.place("f-1-aa", 3, "/page")

    assert ("/bin", "UTC", "t", "1") == tuple(place.environment[key] for key in ("PATH", "TZ", "DESPINA_INSTANCE", "OPENBLAS_NUM_THREADS"))
    assert set() == {"AWS_SECRET", "DESPINA_ADMIN_TOKEN", "HOME"} & set(place.environment)
    assert (short / "r" / "3", short / "work" / "f-1-aa", 5.0) == (place.socket, place.work, place.start_s)


def test_what_an_earlier_node_left_is_removed(short: Path) -> None:
    (short / "r").mkdir()
    (short / "r" / "9").write_text("")
    Rooms(short, {}, 5.0, {})

    assert [] == list((short / "r").iterdir())


def test_a_run_directory_too_long_for_socket_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="bytes too long for the names of unix sockets"):
        Rooms(tmp_path / ("x" * 100), {}, 5.0, {})
