"""Logger: an author's log lines, with the file and line they come from, on standard error like everything a model writes."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import ClassVar


class LogLevel(IntEnum):
    """Triton's levels, with its numbers."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """VERBOSE lines are not written: their level is 0 on this platform, as it is in Triton by default."""

    INFO: ClassVar[LogLevel] = LogLevel.INFO
    WARNING: ClassVar[LogLevel] = LogLevel.WARNING
    ERROR: ClassVar[LogLevel] = LogLevel.ERROR
    VERBOSE: ClassVar[LogLevel] = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: int = LogLevel.INFO) -> None:
        _write(LogLevel(level), message)

    @staticmethod
    def log_info(message: str) -> None:
        _write(LogLevel.INFO, message)

    @staticmethod
    def log_warn(message: str) -> None:
        _write(LogLevel.WARNING, message)

    @staticmethod
    def log_error(message: str) -> None:
        _write(LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message: str) -> None:
        _write(LogLevel.VERBOSE, message)


def _write(level: LogLevel, message: str) -> None:
    if level is LogLevel.VERBOSE:
        return
    caller = sys._getframe(2)
    file = caller.f_code.co_filename.rpartition("/")[2]
    sys.stderr.write(f"{level.name[0]} {file}:{caller.f_lineno}] {message}\n")
    sys.stderr.flush()
