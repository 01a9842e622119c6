"""Steady load from a process of its own: threads with a kept connection each, every answer handed back for checking.

A process of its own, so that the load's Python does not slow down what a test measures.
"""

from __future__ import annotations

import http.client
import json
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.flows.platform import Answer, Platform


@dataclass
class Seen:
    """What a load saw: every answer, and ``errors`` for calls that got none."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]


class Load:
    """``with Load(platform, 8, path, body) as load:`` …; afterwards ``load.seen``. Each connection calls again once it is answered,
    after ``pause_s``."""

    def __init__(self, platform: Platform, connections: int, path: str, body: Any, pause_s: float = 0.0) -> None:
        self.seen = Seen()
        self._asked = (platform.http_port, connections, path, body if isinstance(body, bytes) else json.dumps(body).encode(), pause_s)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Load:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.flows.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._say(self._asked)
        assert self._count() > 0, "no first answer within 60 s"
        return self

    def count(self) -> int:
        """How many answers there are by now."""
        self._say("count")
        return self._count()

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stdin is not None
        with process, process.stdin:
            self._say("stop")
            self.seen = pickle.load(process.stdout)

    def _say(self, what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()

    def _count(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return int(pickle.load(self._process.stdout))


def _call(port: int, path: str, payload: bytes, pause_s: float, seen: Seen, first: threading.Event, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while not stop.is_set():
        try:
            connection.request("POST", path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
        except (OSError, http.client.HTTPException) as error:
            seen.errors.append(repr(error))
            connection.close()
        else:
            seen.answers.append(answer)
            first.set()
        if pause_s:
            stop.wait(pause_s)
    connection.close()


def main() -> None:
    port, connections, path, payload, pause_s = pickle.load(sys.stdin.buffer)
    seen, first, stop = Seen(), threading.Event(), threading.Event()
    threads = [threading.Thread(target=_call, args=(port, path, payload, pause_s, seen, first, stop)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    first.wait(60)
    answer: Any = len(seen.answers)
    while True:
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        if pickle.load(sys.stdin.buffer) == "stop":
            break
        answer = len(seen.answers)
    stop.set()
    for thread in threads:
        thread.join(60)
    pickle.dump(seen, sys.stdout.buffer)


if __name__ == "__main__":
    # Pickled by the names they have for the one who reads them.
    from tests.flows import load

    load.main()
