"""Two thousand malformed requests and uploads: each is refused as somebody's fault, none is ours, and the gateway goes on.

The seed is fixed: a failure names the case and repeats.
"""

from __future__ import annotations

import io
import json
import random
import re
import socket
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.flows import bundles as make
from tests.flows.platform import Answer, Platform, zipped

SEED = 20_260_101
VALID = {
    "id": "1",
    "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "data": [0.5] * 16}],
    "outputs": [{"name": "Y"}],
}


@pytest.fixture(scope="module")
def victim(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = make.identity(tmp_path_factory.mktemp("victim"), "victim")
    platform.upload(bundle).expect(201)
    return bundle


@pytest.mark.usefixtures("victim")
def test_malformed_calls_are_the_callers_fault(platform: Platform) -> None:
    rng = random.Random(SEED)
    statuses: Counter[int] = Counter()
    for case in range(1_200):
        path, body, headers = _broken_call(rng)
        answer = platform.request("POST", path, body, headers)
        statuses[answer.status] += 1

        _is_no_fault_of_ours(answer, f"case {case}: {path} {body[:300]!r} {headers}")
    print(f"\n{dict(statuses)}")
    _still_serves(platform)


@pytest.mark.usefixtures("victim")
def test_noise_on_the_socket_is_refused_or_closed(platform: Platform) -> None:
    rng = random.Random(SEED + 1)
    for case in range(400):
        noise = _broken_http(rng)
        with socket.create_connection(("127.0.0.1", platform.http_port), timeout=20) as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk

        assert b"HTTP/1.1 500" not in answer, f"case {case}: {noise[:300]!r}"
        assert b"Traceback" not in answer
    _still_serves(platform)


def test_malformed_uploads_are_refused_with_a_reason(platform: Platform, victim: Path) -> None:
    rng = random.Random(SEED + 2)
    good = zipped(victim)
    for case in range(400):
        name, body, kind = _broken_upload(rng, good)
        answer = platform.request("POST", f"/v1/functions/{name}/versions?promote=false", body, {"Content-Type": kind})

        _is_no_fault_of_ours(answer, f"case {case}: {kind} {body[:120]!r}", created=True)
    _still_serves(platform)
    names = platform.request("GET", "/v1/functions").expect(200).json
    listed = names["functions"] if isinstance(names, dict) else names
    for function in listed:
        name = function["name"] if isinstance(function, dict) else function
        for version in platform.request("GET", f"/v1/functions/{name}").expect(200).json["versions"]:
            number = version["version"] if isinstance(version, dict) else version
            platform.request("GET", f"/v1/functions/{name}/versions/{number}").expect(200)


def _is_no_fault_of_ours(answer: Answer, case: str, *, created: bool = False) -> None:
    assert answer.status < 500 or answer.status == 501, f"{answer.status} {answer.body[:500]!r} for {case}"
    assert b"Traceback" not in answer.body, case
    if answer.status >= 400:
        assert answer.json["error"], case
        assert answer.headers["despina-error"], case
    elif not created:
        assert answer.status == 200, case


def _still_serves(platform: Platform) -> None:
    answer = platform.request("POST", "/v2/models/victim/infer", VALID).expect(200)

    assert answer.json["outputs"][0]["data"] == [0.5] * 16


def _broken_call(rng: random.Random) -> tuple[str, bytes, dict[str, str]]:
    path = "/v2/models/victim/infer"
    headers: dict[str, str] = {"Content-Type": "application/json"}
    data: Any = json.loads(json.dumps(VALID))
    choice = rng.randrange(12)
    if choice == 0:
        return path, rng.randbytes(rng.randrange(300)), headers
    if choice == 1:
        text = json.dumps(data).encode()
        return path, text[: rng.randrange(len(text))], headers
    if choice == 2:
        data["inputs"][0][rng.choice(["name", "datatype", "shape", "data", "parameters"])] = _anything(rng)
    elif choice == 3:
        data[rng.choice(["inputs", "outputs", "parameters", "id"])] = _anything(rng)
    elif choice == 4:
        data["inputs"][0]["shape"] = [rng.choice([-1, 0, 1, 2, 64, 65, 2**31, 2**63, 10**30]) for _ in range(rng.randrange(5))]
    elif choice == 5:
        del data["inputs"][0][rng.choice(list(data["inputs"][0]))]
    elif choice == 6:
        header = json.dumps(
            {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}]}
        ).encode()
        headers["Inference-Header-Content-Length"] = str(rng.choice([-1, 0, 1, len(header), len(header) + 1, 10**9, "x", ""]))
        return path, header + rng.randbytes(rng.randrange(130)), headers
    elif choice == 7:
        headers["Content-Encoding"] = rng.choice(["gzip", "deflate", "br", "gzip, gzip", "é"]).encode().decode("latin-1")
    elif choice == 8:
        path = rng.choice(
            [
                "/v2/models/nobody/infer",
                "/v2/models/victim/versions/99/infer",
                "/v2/models/victim/versions/x/infer",
                "/v2/models/%2e%2e/infer",
                "/v2/models//infer",
                "/v2/models/victim/infer/",
                "/v2/models/" + "a" * 5000 + "/infer",
            ]
        )
    elif choice == 9:
        data["inputs"] = data["inputs"] * rng.randrange(2, 5)
    elif choice == 10:
        data["outputs"] = [
            {"name": "Y", "parameters": {rng.choice(["classification", "binary_data", "shared_memory_region"]): _anything(rng)}}
        ]
    else:
        data["parameters"] = {rng.choice(["priority", "timeout", "sequence_id", "triton_x", "binary_data_output", "other"]): _anything(rng)}
    text = json.dumps(data).encode()
    if rng.random() < 0.3:
        position = rng.randrange(len(text))
        text = text[:position] + rng.randbytes(rng.randrange(1, 4)) + text[position + rng.randrange(3) :]
    return path, text, headers


def _broken_http(rng: random.Random) -> bytes:
    body = json.dumps(VALID).encode()
    head = b"POST /v2/models/victim/infer HTTP/1.1\r\nHost: x\r\n"
    choice = rng.randrange(7)
    if choice == 0:
        return rng.randbytes(rng.randrange(1, 500))
    if choice == 1:
        return head + b"Content-Length: " + str(rng.choice([-5, "x", 2**70, "1,2", "+3", "0x10"])).encode() + b"\r\n\r\n" + body
    if choice == 2:
        return head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    if choice == 3:
        return (
            head + b"Transfer-Encoding: chunked\r\n\r\n" + rng.choice([b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nab"]) + body
        )
    if choice == 4:
        return head + b"X: " + b"y" * rng.choice([10, 70_000, 300_000]) + b"\r\nContent-Length: 2\r\n\r\n{}"
    if choice == 5:
        return head + b"".join(b"H%d: v\r\n" % i for i in range(rng.choice([5, 500]))) + b"Content-Length: 2\r\n\r\n{}"
    whole = bytearray(head + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
    for _ in range(rng.randrange(1, 6)):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole)


def _broken_upload(rng: random.Random, good: bytes) -> tuple[str, bytes, str]:
    name = rng.choice(["up", "up2", "victim", "bad..name", "%20", "-x", "u" * 200])
    choice = rng.randrange(8)
    if choice == 0:
        return (
            name,
            rng.randbytes(rng.randrange(2_000)),
            rng.choice(["application/zip", "application/x-tar", "application/gzip", "text/plain"]),
        )
    if choice == 1:
        return name, good[: rng.randrange(len(good))], "application/zip"
    if choice == 2:
        broken = bytearray(good)
        for _ in range(rng.randrange(1, 20)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        return name, bytes(broken), "application/zip"
    if choice == 3:
        return (
            name,
            _zip({rng.choice(["../evil", "/etc/x", "a/../../b", "1/\\x", "a\x00b", "1/" + "d/" * 60 + "f"]): b"x"}),
            "application/zip",
        )
    if choice == 4:
        return name, _tar_with_link(rng), "application/x-tar"
    if choice == 5:
        config = rng.choice(
            [
                b"max_batch_size: x",
                b"nope: 1",
                b"input {",
                b"\xff\xfe",
                b'backend: "python"\nmax_batch_size: -3',
                b'platform: "ensemble"',
                b"",
            ]
        )
        return name, _zip({"config.pbtxt": config, "1/model.py": rng.choice([b"def (", b"", b"\x00", b"import os"])}), "application/zip"
    if choice == 6:
        return name, json.dumps({"files": _anything(rng)}).encode(), "application/json"
    return name, _zip({"config.pbtxt": b'backend: "onnxruntime"', "1/model.onnx": rng.randbytes(500)}), "application/zip"


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return buffer.getvalue()


def _tar_with_link(rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("1/model.py")
        entry.type = rng.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
        entry.linkname = rng.choice(["/etc/passwd", "../../x", "config.pbtxt"])
        archive.addfile(entry)
    return buffer.getvalue()


def _anything(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            True,
            -1,
            0,
            1.5,
            2**63,
            1e308,
            "",
            "x",
            "FP16",
            "BYTES",
            [],
            [[]],
            [None],
            [1, "a"],
            {},
            {"a": {"b": []}},
            [[1.0] * 8, [2.0]],
            "\ud800",
        ]
    )


def test_the_process_that_inspects_a_bundle_holds_no_socket_of_the_gateway(platform: Platform, bundles: Path) -> None:
    """It inherited the listening socket: a bundle could answer other people's requests while it was inspected."""
    bundle = make.python(
        bundles,
        "prying",
        "",
        """
        import os

        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                held = []
                for fd in os.listdir("/proc/self/fd"):
                    try:
                        held.append(os.readlink(f"/proc/self/fd/{fd}"))
                    except OSError:
                        pass
                raise ValueError("sockets: " + repr([each for each in held if each.startswith("socket:")]))

            def execute(self, requests):
                return []
        """,
    )
    refused = platform.upload(bundle).expect(422)

    held = set(re.findall(r"socket:\[(\d+)\]", refused.json["error"]))
    tcp = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}

    assert "sockets: " in refused.json["error"]
    assert not held & tcp
