"""A replica in a process of its own, and a router small enough to see through: it speaks frames and checks nothing."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from functions.protocol import frames
from functions.protocol.frames import NO_HEADER, Kind
from functions.tensors import DTYPES, decode_bytes, encode_bytes, protocol_dtype
from tests.workers.process.bundles import DIGEST
from workers.process import page
from workers.process.spec import MemberSpec, ReplicaSpec

LIMIT_S = 20.0


@dataclass
class Frame:
    kind: int
    flags: int
    id: int
    payload: bytes


@dataclass
class Answer:
    """A REPLY taken apart, or a FAILURE."""

    id: int
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    error: tuple[int, str] | None = None


class Replica:
    """Started at once; ``ready`` waits for it. Use as a context manager: it is killed at the end."""

    def __init__(self, folder: Path, members: Sequence[MemberSpec], **spec: Any) -> None:
        self.spec = ReplicaSpec("r1", tuple(members), secrets.token_hex(32), 7, str(folder / "page"), **spec)
        page.create(self.spec.page)
        self.path = str(folder / "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self._status, write = os.pipe()
        self._log = (folder / "log").open("wb")
        self.log_path = folder / "log"
        with listener:
            listener.set_inheritable(True)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.workers.process.child", json.dumps(self.spec.to_json()), str(listener.fileno()), str(write)],
                pass_fds=(listener.fileno(), write),
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        os.close(write)
        self.lines: list[dict[str, Any]] = []
        self._text = b""

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._status)
        self._log.close()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def until(self, state: str) -> dict[str, Any]:
        """The first status line with that state; fails when another final one comes first."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            for line in self.lines:
                if line.get("state") == state:
                    return line
            assert not any(line.get("state") == "failed" for line in self.lines), (self.lines, self.log)
            readable, _, _ = select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"no {state} within {LIMIT_S} s: {self.lines} {self.log}"
            read = os.read(self._status, 65536)
            assert read, f"the replica ended: {self.lines} {self.log}"
            self._text += read
            *lines, self._text = self._text.split(b"\n")
            self.lines += [json.loads(line) for line in lines]

    def ready(self) -> Replica:
        self.until("ready")
        return self

    def link(self, **hello: Any) -> Link:
        return Link(self, **hello)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def counters(self, model: str) -> dict[str, float]:
        """The values of one member's series, those of one reason as ``family/reason``."""
        reader = page.PageReader(self.spec.page)
        try:
            return {
                "/".join([sample.family, *[sample.labels[key] for key in ("reason", "size") if key in sample.labels]]): sample.value
                for sample in reader.samples()
                if sample.labels["model"] == model
            }
        finally:
            reader.close()

    def running(self) -> list[page.Batch]:
        reader = page.PageReader(self.spec.page)
        try:
            return reader.running()
        finally:
            reader.close()


class Link:
    """One connection to a replica."""

    def __init__(
        self, replica: Replica, *, token: str | None = None, epoch: int | None = None, digest: bytes | None = None, greet: bool = True
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(replica.path)
        self.frames: deque[Frame] = deque()
        self._splitter = frames.Splitter(lambda kind, flags, id, payload: self.frames.append(Frame(kind, flags, id, bytes(payload))))
        self._ids = 0
        if greet:
            spec = replica.spec
            self.socket.sendall(
                frames.hello(
                    bytes.fromhex(token or spec.token),
                    digest or bytes.fromhex(DIGEST.removeprefix("sha256:")),
                    spec.epoch if epoch is None else epoch,
                )
            )

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self) -> Frame:
        """The next frame; fails at the end of the stream."""
        while not self.frames:
            data = self.socket.recv(1 << 20)
            assert data, "the replica closed the link"
            self._splitter.feed(data)
        return self.frames.popleft()

    def expect(self, kind: Kind) -> Frame:
        """The next frame of that kind; READYs before it are passed over."""
        return self.expect_any(kind)

    def expect_any(self, *kinds: Kind) -> Frame:
        """The next frame of one of those kinds; READYs before it are passed over."""
        while (frame := self.frame()).kind not in kinds:
            assert frame.kind == Kind.READY, frame
        return frame

    def credit(self) -> int:
        return frames.READY.unpack(self.expect(Kind.READY).payload)[0]

    def closed(self) -> bool:
        """Wait for the end of the stream; False if a frame other than READY came instead."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return True
            if not data:
                return True
            self._splitter.feed(data)
            if any(frame.kind != Kind.READY for frame in self.frames):
                return False

    def call(
        self, inputs: dict[str, np.ndarray], *, timeout_s: float = 0.0, outputs: Sequence[str] = (), hops: int = 0, **more: Any
    ) -> int:
        """Send a call and tell its id."""
        body, header_length = encode(inputs, outputs, **more)
        return self.raw(body, header_length, timeout_s=timeout_s, hops=hops)

    def raw(self, body: bytes, header_length: int = NO_HEADER, *, timeout_s: float = 0.0, hops: int = 0, flags: int = 0) -> int:
        self._ids += 1
        self.socket.sendall(frames.call(self._ids, len(body), int(timeout_s * 1e6), header_length, hops=hops, flags=flags) + body)
        return self._ids

    def cancel(self, id: int) -> None:
        self.socket.sendall(frames.bare(Kind.CANCEL, id))

    def answer(self) -> Answer:
        while True:
            frame = self.frame()
            if frame.kind == Kind.REPLY:
                return reply(frame)
            if frame.kind == Kind.FAILURE:
                return Answer(frame.id, error=frames.read_failure(memoryview(frame.payload)))
            assert frame.kind == Kind.READY, frame

    def ask(self, inputs: dict[str, np.ndarray], **more: Any) -> Answer:
        id = self.call(inputs, **more)
        answer = self.answer()
        assert id == answer.id
        return answer


def encode(inputs: dict[str, np.ndarray], outputs: Sequence[str] = (), **more: Any) -> tuple[bytes, int]:
    tails = [encode_bytes(array) if array.dtype == object else array.tobytes() for array in inputs.values()]
    header: dict[str, Any] = {
        "inputs": [
            {"name": name, "datatype": protocol_dtype(array.dtype), "shape": array.shape, "parameters": {"binary_data_size": len(tail)}}
            for (name, array), tail in zip(inputs.items(), tails, strict=True)
        ],
        "parameters": {"binary_data_output": True},
        **more,
    }
    if outputs:
        header["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(header).encode()
    return b"".join([head, *tails]), len(head)


def reply(frame: Frame) -> Answer:
    header_length, body = frames.read_reply(memoryview(frame.payload))
    head = body if header_length == NO_HEADER else body[:header_length]
    header = json.loads(bytes(head))
    position = len(head)
    outputs = {}
    for output in header["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            outputs[output["name"]] = np.array(output["data"], DTYPES[output["datatype"]].numpy).reshape(output["shape"])
            continue
        data = body[position : position + size]
        count = int(np.prod(output["shape"]))
        array = decode_bytes(data, count) if output["datatype"] == "BYTES" else np.frombuffer(data, DTYPES[output["datatype"]].numpy)
        outputs[output["name"]] = array.reshape(output["shape"])
        position += size
    return Answer(frame.id, outputs, header)
