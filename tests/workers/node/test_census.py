from __future__ import annotations

import os
import secrets
import subprocess
import time

from tests.processes import eventually
from workers.node import census


def test_a_process_is_found_by_the_mark_in_its_environment() -> None:
    mark = secrets.token_hex(16)
    with subprocess.Popen(["sleep", "60"], env={"X": mark}) as child:
        eventually(lambda: {child.pid} == census.carrying(mark), "the child is found")

        assert child.pid in census.descendants([os.getpid()])
        assert set() == census.exterminate(mark)
    assert set() == census.carrying(mark)


def test_the_process_table_tells_parents_groups_and_when_each_began() -> None:
    before = time.time()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        (entry,) = [entry for entry in census.table() if entry.pid == child.pid]
        began = census.began(child.pid)
        child.kill()

    assert (os.getpid(), child.pid, child.pid) == (entry.parent, entry.group, entry.session)
    assert began is not None
    assert abs(began - before) < 5
    assert census.began(child.pid) is None
