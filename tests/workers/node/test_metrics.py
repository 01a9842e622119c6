"""One machine's metrics, as a scraper reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.workers.node import counted
from workers.node.exposition import render
from workers.node.messages import ReplicaEvent, State
from workers.node.metrics import FAMILIES, TRITON, NodeMetrics
from workers.node.metrics_server import MetricsServer
from workers.node.pages import Pages
from workers.process import page
from workers.process.page import Page


def event(state: State = State.READY, version: int = 1) -> ReplicaEvent:
    return ReplicaEvent(f"f-{version}", "f", version, "sha256:0", state, "unix:/x", "ab", 1, phases={"forked": 0.004, "loaded": 0.5})


@pytest.fixture
def metrics(tmp_path: Path) -> NodeMetrics:
    counted.write(tmp_path, 1, _team="x")
    return NodeMetrics(Pages(tmp_path), lambda: [event(), event(), event(State.LOADING, 2)])


def samples(metrics: NodeMetrics) -> dict[str, float]:
    text = render(metrics.collect()).decode()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if not line.startswith("#")}


def test_triton_families_come_first_in_tritons_order_with_its_help(metrics: NodeMetrics) -> None:
    families = list(metrics.collect())

    assert list(TRITON) == [family.name for family in families][: len(TRITON)]
    for family in families[: len(FAMILIES)]:
        assert FAMILIES[family.name] == (family.type, family.documentation)


def test_what_a_replica_counts_is_shown_under_tritons_labels(metrics: NodeMetrics) -> None:
    shown = samples(metrics)
    labels = '_team="x",model="f",version="1"'

    assert 3 == shown[f"nv_inference_request_success{{{labels}}}"]
    assert 5 == shown[f"nv_inference_count{{{labels}}}"]
    assert 2 == shown['nv_inference_request_failure{_team="x",model="f",reason="BACKEND",version="1"}']
    assert 0 == shown['nv_inference_request_failure{_team="x",model="f",reason="REJECTED",version="1"}']
    assert 33 == shown[f"nv_inference_request_duration_us{{{labels}}}"]
    assert 0.0 <= shown["nv_cpu_utilization"] <= 1.0
    assert 0 < shown["nv_cpu_memory_used_bytes"] < shown["nv_cpu_memory_total_bytes"]


def test_replicas_deaths_and_cold_starts_are_counted(metrics: NodeMetrics) -> None:
    metrics.started(event())
    metrics.died(event(State.FAILED), "replica_died")
    shown = samples(metrics)

    assert 2 == shown['despina_replicas{function="f",state="ready",version="1"}']
    assert 1 == shown['despina_replicas{function="f",state="loading",version="2"}']
    assert 1 == shown['despina_replica_deaths_total{code="replica_died",function="f",version="1"}']
    assert 1 == shown['despina_cold_start_seconds_bucket{function="f",le="0.01",phase="forked"}']
    assert 0.504 == shown['despina_cold_start_seconds_sum{function="f",phase="total"}']


def test_a_family_that_only_a_page_knows_is_shown_too(tmp_path: Path) -> None:
    page.create(str(tmp_path / "replica-a"))
    writer = Page(str(tmp_path / "replica-a"))
    writer.values[writer.series("despina_new_thing_total", {})] = 5

    assert 5 == samples(NodeMetrics(Pages(tmp_path), list))["despina_new_thing_total"]


async def test_a_scraper_gets_text_and_others_a_refusal(metrics: NodeMetrics) -> None:
    server = MetricsServer(metrics, "127.0.0.1", 0)
    async with asyncio.TaskGroup() as group, httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        server.start(group)
        good, head, elsewhere, posted = (
            await client.get("/metrics"),
            await client.head("/metrics"),
            await client.get("/other"),
            await client.post("/metrics"),
        )
        await server.close()

    assert "text/plain; charset=utf-8" == good.headers["content-type"]
    assert "nv_inference_count" in {family.name.removesuffix("_total") for family in text_string_to_metric_families(good.text)}
    assert [200, 200, 404, 405] == [answer.status_code for answer in (good, head, elsewhere, posted)]


def test_a_port_in_use_is_an_error_at_once(metrics: NodeMetrics) -> None:
    first = MetricsServer(metrics, "127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        MetricsServer(metrics, "127.0.0.1", first.port)
    first._socket.close()
