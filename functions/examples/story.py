"""Despina's main job, told in seven chapters on real input: deploy, read, classify, recognise, publish, roll back, account.

Everything goes through the ``despina`` command and the public HTTP interface, and everything that is said is checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from functions.examples import build, digits, exam, pictures, resnet50
from functions.examples.claims import Claims
from functions.examples.client import Client
from functions.examples.exam import Exam, examine
from functions.examples.platform import Platform

RESNET_INPUT, RESNET_OUTPUT = "gpu_0/data_0", "gpu_0/softmax_1"
CALLERS, PICTURES = 8, 24
QUEUE = "nv_inference_queue_duration_us"
REQUESTS, ROWS, BATCHES = "nv_inference_request_success", exam.ROWS, "nv_inference_exec_count"


class Story:
    """Told once, to one platform: what each chapter needs, and what has been claimed so far."""

    def __init__(self, console: Console, claims: Claims, repository: Path, platform: Platform, client: Client) -> None:
        self.console, self.claims = console, claims
        self.repository, self.platform, self.client = repository, platform, client
        _, self.held_out = digits.split()

    def tell(self) -> None:
        """The story, from the first upload to the counters. Raises CallFailed or PlatformFailed where it cannot go on."""
        with self.chapter("Deploy all examples as one release"):
            self.deploy()
        with self.chapter("Read a real page"):
            self.read()
        with self.chapter("Classify pictures, several at once"):
            self.classify()
        with self.chapter(f"Recognise {len(self.held_out.labels)} held-out digits, one call each"):
            usual = self.recognise()
        with self.chapter("Publish a more careful version of digits"):
            self.publish(usual)
        with self.chapter("Roll back by tag"):
            self.roll_back(usual)
        with self.chapter("Where the time went"):
            self.account()

    def deploy(self) -> None:
        names = [example.name for example in build.EXAMPLES]
        self.platform.command("deploy", *(self.repository / name for name in names))
        functions = [self.client.get(f"/v1/functions/{name}") for name in names]
        live = [function["tags"]["live"] for function in functions]
        self.claims.claim(f"{len(names)} functions are live", all(move["version"] == 1 for move in live))
        self.claims.claim("all of them went live in one release", len({move["release"] for move in live}) == 1)
        lock = functions[names.index("read_text")]["versions"][0]["lock"]
        locked = " and ".join(f"{callee} @ {version}" for callee, version in sorted(lock.items()))
        self.claims.claim(f"read_text @ 1 locks {locked}", lock == {"detect_text": 1, "text_recognizer": 1})

    def read(self) -> None:
        lines, calls = self.read_one(pictures.page())
        right = sum(line in pictures.PAGE_TEXT for line in lines)
        self.claims.claim(
            f"of the page's 7 lines {len(lines)} are found, {right} right to the letter",
            len(lines) == len(pictures.PAGE_TEXT) and right >= 6,
        )
        self.claims.claim(f"{calls} calls of the recogniser read them", 0 < calls < len(lines))
        lines, calls = self.read_one(pictures.photo())
        self.claims.claim(f"a photo without text needs {calls} calls", lines == [] and calls == 0)

    def read_one(self, picture: Path) -> tuple[list[str], int]:
        """The lines in a picture, and how often the recogniser was called; shown, and read a second time for the time it takes."""
        image = {"IMAGE": np.array([picture.read_bytes()], dtype=object)}
        first, again = (self.client.infer("read_text", image) for _ in range(2))
        self.console.print(f"  {picture.name}: {first.seconds:.2f} s, again {again.seconds:.2f} s")
        lines = [line.decode() for line in first.outputs["TEXT"]]
        for line, score in zip(lines, first.outputs["SCORES"], strict=True):
            self.console.print(f"    [cyan]{score:.2f}[/] {escape(line)}")
        self.claims.claim("reading it again says the same", first.outputs["TEXT"].tolist() == again.outputs["TEXT"].tolist())
        return lines, int(first.outputs["CALLS"][0])

    def classify(self) -> None:
        answer = self.client.infer("resnet50", {RESNET_INPUT: resnet50.probe()})
        exact = bool(np.allclose(answer.outputs[RESNET_OUTPUT], resnet50.expected(), rtol=1e-3))
        self.claims.claim("resnet50 answers its probe as the onnx package says it must", exact)
        before = self.client.counters()
        began = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as pool:
            shapes = list(pool.map(self.classify_one, range(PICTURES)))
        seconds = time.perf_counter() - began
        rows, batches = (self.rise(before, family, "resnet50") for family in (ROWS, BATCHES))
        self.console.print(f"  {PICTURES} pictures from {CALLERS} callers in {seconds:.2f} s, {1000 * seconds / PICTURES:.0f} ms each")
        self.claims.claim(
            f"{rows:.0f} pictures ran in {batches:.0f} batches", shapes == [(1, 1000)] * PICTURES and batches < rows == PICTURES
        )

    def classify_one(self, seed: int) -> tuple[int, ...]:
        """One caller of its own, with a picture of its own: the shape of the answer."""
        picture = np.random.default_rng(seed).random(resnet50.PROBE_SHAPE, np.float32)
        with Client(self.platform.url, self.platform.metrics_url) as caller:
            return caller.infer("resnet50", {RESNET_INPUT: picture}).outputs[RESNET_OUTPUT].shape

    def recognise(self) -> Exam:
        small, big, cascade = (examine(self.client, self.held_out, name) for name in ("digits_small", "digits_big", "digits"))
        self.console.print(exam.table({"digits_small": small, "digits_big": big, f"digits @ {cascade.version}": cascade}))
        self.expect(cascade, accuracy=97.1, escalated=16.4)
        self.console.print(
            f"  a digit costs {cascade.model_us:.0f} µs of model time, {100 * cascade.model_us / big.model_us:.0f} % of the big model alone"
        )
        self.claims.claim(f"the expensive model ran {cascade.expensive} digits, exactly those", cascade.expensive == cascade.escalations)
        return cascade

    def publish(self, usual: Exam) -> None:
        self.platform.command("tag", "digits", "known-good", str(usual.version))
        self.platform.command("deploy", build.careful(self.repository) / "digits")
        careful = examine(self.client, self.held_out, "digits")
        self.console.print(exam.table({f"digits @ {usual.version}": usual, f"digits @ {careful.version}": careful}))
        self.claims.claim("live names the new version", careful.version == self.live("digits") != usual.version)
        self.expect(careful, accuracy=99.2, escalated=64.5)
        (changed,) = np.nonzero(usual.labels != careful.labels)
        self.claims.claim(f"{len(changed)} answers changed", len(changed) > 0)
        pixels = self.held_out.pixels[changed]
        old = self.client.infer("digits", {"pixels": pixels}, str(usual.version)).outputs["label"][:, 0]
        self.claims.claim(
            f"who asks for version {usual.version} by number still gets its answers", np.array_equal(old, usual.labels[changed])
        )

    def roll_back(self, usual: Exam) -> None:
        began = time.perf_counter()
        self.platform.command("rollback", "digits", "--to", "known-good")
        seconds = time.perf_counter() - began
        back = examine(self.client, self.held_out, "digits")
        self.claims.claim(
            f"after {seconds:.2f} s, command included, live names version {back.version} again", back.version == usual.version
        )
        self.claims.claim("every answer is what it was before", back.agrees(usual))
        history = self.history("digits")
        table = Table("move", "version", "why", "held", box=None, padding=(0, 2))
        for move in history:
            table.add_row(str(move["epoch"]), str(move["targets"][0]["version"]), move["reason"], "yes" if move["held"] else "")
        self.console.print(table)
        went = [move["targets"][0]["version"] for move in history]
        self.claims.claim(f"the history of live remembers: {' → '.join(map(str, went))}", went == [1, 2, 1])

    def account(self) -> None:
        counters = self.client.counters()
        table = Table("function", "requests", "rows", "batches", "queue µs", "compute µs", box=None, padding=(0, 2))
        for name in (example.name for example in build.EXAMPLES):
            requests = counters.get((REQUESTS, name), 0.0)
            if requests:
                each = [f"{counters[family, name] / requests:,.0f}" for family in (QUEUE, exam.COMPUTE)]
                table.add_row(name, *(f"{counters[family, name]:,.0f}" for family in (REQUESTS, ROWS, BATCHES)), *each)
        self.console.print(table)
        busy = [name for name in ("read_text", "detect_text", "text_detector", "text_recognizer") if counters.get((REQUESTS, name))]
        self.claims.claim(f"every member of the graph counts for itself: {', '.join(busy)}", len(busy) == 4)

    def expect(self, result: Exam, accuracy: float, escalated: float) -> None:
        """Claim both shares, in percent, within one point."""
        share = result.escalation or 0.0
        self.claims.claim(f"{result.accuracy:.1f} % are right (expected {accuracy} %)", abs(result.accuracy - accuracy) <= 1)
        self.claims.claim(f"{share:.1f} % were escalated (expected {escalated} %)", abs(share - escalated) <= 1)

    def live(self, name: str) -> int:
        """The version that ``live`` names."""
        return int(self.client.get(f"/v1/functions/{name}")["tags"]["live"]["version"])

    def history(self, name: str) -> list[dict[str, Any]]:
        """Where ``live`` has pointed, oldest first."""
        moves = self.client.get(f"/v1/functions/{name}/history")["history"]
        return sorted((move for move in moves if move["tag"] == "live"), key=itemgetter("epoch"))

    def rise(self, before: dict[tuple[str, str], float], family: str, model: str) -> float:
        """By how much a counter has grown."""
        return self.client.counters().get((family, model), 0.0) - before.get((family, model), 0.0)

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """A heading, and at the end how long it took."""
        self.console.print(f"\n[bold]{title}[/]")
        began = time.perf_counter()
        yield
        self.console.print(f"  [dim]{time.perf_counter() - began:.1f} s[/]")
