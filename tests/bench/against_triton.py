"""Throughput beside a real Triton, in one run: the same Python model, the same bytes, the same load generator.

    TRITON_HOME=DIR python -m tests.bench.against_triton [--seconds 5] [--connections 1 8 32] [--rounds 3]

needs ``wrk`` and a Triton (``python -m tests.oracle.triton DIR``). Each round measures one after the other, so that drift of a
shared machine hits both; printed are the medians and the ratio. Answers are checked while wrk runs: one more connection sends
random numbers, 200 times a second, and every answer must be its own; wrk itself counts any status but 200. (A check of each body in
wrk's Lua takes more of the two cores than either server: it would measure wrk.)
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.flows import bundles
from tests.flows.platform import running
from tests.oracle import triton
from tests.processes import free_port

VALUES = struct.pack("<16f", *range(16))
HEADER = json.dumps(
    {
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}],
        "outputs": [{"name": "Y", "parameters": {"binary_data": True}}],
    },
    separators=(",", ":"),
).encode()
SCRIPT = """
local f = io.open("{body}", "rb"); wrk.body = f:read("*a"); f:close()
wrk.method = "POST"
wrk.headers["Inference-Header-Content-Length"] = "{header}"
wrk.headers["Content-Type"] = "application/octet-stream"
"""
CHECKS_PER_S = 200


def measure(port: int, connections: int, seconds: int, script: Path) -> tuple[float, str]:
    """Requests per second and the latency lines of one wrk run. Raises AssertionError on any wrong answer."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
    process = subprocess.Popen([*command, f"http://127.0.0.1:{port}/v2/models/identity/infer"], stdout=subprocess.PIPE, text=True)
    checked = _check_until(lambda: process.poll() is not None, port)
    done = process.communicate()[0]
    assert process.returncode == 0, done
    assert checked > seconds * CHECKS_PER_S / 20, f"only {checked} answers checked"
    assert "Non-2xx" not in done, done
    assert "Socket errors" not in done, done
    p50, p99 = (re.search(rf"{percentile}%\s+(\S+)", done) for percentile in (50, 99))
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done)
    assert rate is not None
    return float(rate[1]), f"p50 {p50[1] if p50 else '?'} p99 {p99[1] if p99 else '?'}"


def _check_until(over: Callable[[], bool], port: int) -> int:
    """Send random numbers and compare each answer, until ``over``; how many there were."""
    random = Random(port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    count = 0
    while not over():
        values = random.randbytes(64)
        connection.request("POST", "/v2/models/identity/infer", HEADER + values, {"Inference-Header-Content-Length": str(len(HEADER))})
        answer = connection.getresponse()
        body = answer.read()

        assert answer.status == 200, body
        assert body.endswith(values), "an answer that is not its own"

        count += 1
        time.sleep(1 / CHECKS_PER_S)
    connection.close()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    directory = triton.installed()
    if directory is None or shutil.which("wrk") is None:
        raise SystemExit("set TRITON_HOME to an installed Triton and install wrk")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "body").write_bytes(HEADER + VALUES)
        script = root / "post.lua"
        script.write_text(SCRIPT.format(body=root / "body", header=len(HEADER)))
        repository = root / "repository"
        bundles.identity(repository)
        with running(root / "data") as ours:
            ours.upload(repository / "identity").expect(201)
            port = free_port()
            with triton.running(directory, repository, port, free_port(), free_port()):
                for each in (ours.http_port, port):
                    _warm(each)
                    measure(each, 8, 2, script)
                print(f"{'connections':>11} {'despina rps':>12} {'triton rps':>12} {'ratio':>6}  latency (despina | triton, last round)")
                for connections in asked.connections:
                    rounds = [
                        (measure(ours.http_port, connections, asked.seconds, script), measure(port, connections, asked.seconds, script))
                        for _ in range(asked.rounds)
                    ]
                    mine = statistics.median(one[0] for one, _ in rounds)
                    theirs = statistics.median(other[0] for _, other in rounds)
                    ratio = statistics.median(one[0] / other[0] for one, other in rounds)
                    print(f"{connections:>11} {mine:>12.0f} {theirs:>12.0f} {ratio:>6.2f}  {rounds[-1][0][1]} | {rounds[-1][1][1]}")


def _warm(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v2/models/identity/infer", HEADER + VALUES, {"Inference-Header-Content-Length": str(len(HEADER))})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    assert body.endswith(VALUES), body


if __name__ == "__main__":
    main()
