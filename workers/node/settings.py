"""Every setting of a node process: one frozen type, given as one JSON argument."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from workers.node import machine


class Settings(BaseModel):
    """What ``python -m workers.node.main`` is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Path = Field(description="Directory for sockets and pages; its path leaves room for the names of unix sockets (under 80 bytes).")
    cache: Path = Field(description="Directory for the files of versions.")
    logs: Path = Field(description="Directory for what replicas write.")
    store: str = Field(description="URL of the store of versions and tags.")
    control: Path = Field(description="Path of the control socket.")
    token: str = Field(min_length=16, description="What a client of the control socket must show.")
    instance: str = Field(
        min_length=16, description="Text in the environment of all processes of one platform, by which a guard finds them."
    )
    id: str = Field("local", min_length=1, description="The node's name in a fleet.")
    metrics_host: str = Field("127.0.0.1", description="Address of the metrics.")
    metrics_port: int = Field(8002, ge=0, le=65535, description="Port of the metrics; 0: a free one.")
    processes: int = Field(default_factory=lambda: 32 * machine.cores(), ge=1, description="Most replica processes at once.")
    memory_bytes: int = Field(default_factory=machine.memory_limit, ge=1, description="Bytes of memory that replicas may claim together.")
    cache_bytes: int = Field(32 << 30, ge=1, description="Most bytes of versions' files; above it what nothing runs goes.")
    starts: int = Field(default_factory=lambda: max(2, machine.cores()), ge=1, description="Replicas that may load at once.")
    start_s: float = Field(300.0, gt=0, description="Seconds a replica may take to become ready.")
    drain_s: float = Field(30.0, gt=0, description="Seconds that running batches get when the node stops.")
    runtime: str = Field("workers.process.main:run", description="module:function that a replica becomes.")
