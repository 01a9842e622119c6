"""An author's exception as Triton words it: type, message, and an ``At:`` list of frames, the innermost first."""

from __future__ import annotations

import traceback
from types import TracebackType


def told(error: BaseException, root: str) -> str:
    """``ValueError: boom`` and the frames from where it was raised out to the last one under the directory ``root``; those of the
    platform outside of it are left out. A syntax error names its file and line instead."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({(error.filename or '').rpartition('/')[2]}, line {error.lineno})"
    text = f"{type(error).__name__}: {error}"
    frames = [
        f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in _from_author(traceback.extract_tb(error.__traceback__), root)
    ]
    return f"{text}\n\nAt:\n{''.join(reversed(frames))}" if frames else text


def drop_platform(trace: TracebackType | None, root: str) -> TracebackType | None:
    """The trace from the first frame under ``root`` on; all of it when there is none."""
    step = trace
    while step is not None and not step.tb_frame.f_code.co_filename.startswith(root):
        step = step.tb_next
    return step or trace


def _from_author(frames: traceback.StackSummary, root: str) -> list[traceback.FrameSummary]:
    for position, frame in enumerate(frames):
        if frame.filename.startswith(root):
            return list(frames[position:])
    return []
