"""A process that outlives its parent by a moment, to leave nothing behind: when the pipe between them closes, for whatever
reason, it kills every registered process group, then every process that carries the instance's token in its environment.

PR_SET_PDEATHSIG would not do: it follows the forking thread, is cleared by exec of a set-uid file, and knows no grandchildren.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from workers.node import census


class Guard:
    """The parent's side. One owner, one thread; the guard process reads its pipe and does nothing else until it ends.

    The token must be in the environment of every process to be found (``environment``), and not in the parent's own unless the
    parent may be killed with the rest. It is at least 16 characters, so that nobody else's environment holds it by chance.
    """

    VARIABLE = "DESPINA_INSTANCE"

    def __init__(self, token: str, process: subprocess.Popen[bytes]) -> None:
        self.token = token
        self._process = process
        self._groups: set[int] = set()

    @classmethod
    def start(cls, token: str) -> Guard:
        """Start a guard for the instance ``token``. Raises ValueError for a token that is too short to be safe."""
        if len(token) < 16:
            raise ValueError(f"a guard's token of {len(token)} characters; at least 16 are needed")
        return cls(token, _spawn(token))

    @property
    def environment(self) -> dict[str, str]:
        """What the guarded processes must have in their environment."""
        return {self.VARIABLE: self.token}

    @property
    def pid(self) -> int:
        return self._process.pid

    def add(self, pgid: int) -> None:
        """From now on, kill this process group when the parent is gone."""
        self._groups.add(pgid)
        self._send(f"+{pgid}\n")

    def remove(self, pgid: int) -> None:
        """The group is gone: its number may be someone else's soon."""
        self._groups.discard(pgid)
        self._send(f"-{pgid}\n")

    def ensure(self) -> bool:
        """Start another guard if this one was killed. Whether it was."""
        if self._process.poll() is None:
            return False
        self._replace()
        return True

    def close(self, wait_s: float = 15.0) -> None:
        """The end: the guard kills what is left of the groups and of the token's carriers, and exits. Blocks until it has."""
        if self._process.poll() is not None and self._groups:
            self._replace()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except BrokenPipeError:
            self._replace()

    def _replace(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._process = _spawn(self.token)
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), "".join(f"+{group}\n" for group in self._groups).encode())


def _spawn(token: str) -> subprocess.Popen[bytes]:
    # A session of its own: the terminal's signals do not reach it. No token in its environment: guards do not kill guards,
    # each ends by itself when its pipe closes.
    environment = {key: value for key, value in os.environ.items() if key != Guard.VARIABLE}
    command = [sys.executable, "-P", "-m", "workers.node.guard", token]
    return subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, env=environment, cwd="/", start_new_session=True)


def watch(pipe: int) -> set[int]:
    """Read ``+group`` and ``-group`` lines until the pipe closes; the groups registered then."""
    groups: set[int] = set()
    rest = b""
    while data := os.read(pipe, 65536):
        *lines, rest = (rest + data).split(b"\n")
        _note(groups, lines)
    return groups


def _note(groups: set[int], lines: Iterable[bytes]) -> None:
    for line in lines:
        group = int(line[1:])
        if line[:1] == b"+":
            groups.add(group)
        else:
            groups.discard(group)


def main() -> None:
    """The guard process: ``python -m workers.node.guard TOKEN``, its pipe as standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    token = sys.argv[1]
    groups = watch(0)
    survivors = census.exterminate(f"{Guard.VARIABLE}={token}", groups)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
