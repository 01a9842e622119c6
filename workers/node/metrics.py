"""The metrics of one machine: Triton's families under Triton's names and help texts, and Despina's own.

Everything counted in a shared page is here, from all processes of the machine. A family is declared in FAMILIES with its help
text; one that a page names and this table does not is still shown, after the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Histogram, Metric
from prometheus_client.registry import Collector

from workers.node import machine
from workers.node.messages import ReplicaEvent, State
from workers.node.pages import Pages
from workers.process.page import Sample

TRITON = {
    "nv_inference_request_success": ("counter", "Number of successful inference requests, all batch sizes"),
    "nv_inference_request_failure": ("counter", "Number of failed inference requests, all batch sizes"),
    "nv_inference_count": ("counter", "Number of inferences performed (does not include cached requests)"),
    "nv_inference_exec_count": ("counter", "Number of model executions performed (does not include cached requests)"),
    "nv_inference_request_duration_us": ("counter", "Cumulative inference request duration in microseconds (includes cached requests)"),
    "nv_inference_queue_duration_us": ("counter", "Cumulative inference queuing duration in microseconds (includes cached requests)"),
    "nv_inference_compute_input_duration_us": (
        "counter",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
    ),
    "nv_inference_compute_infer_duration_us": (
        "counter",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
    ),
    "nv_inference_compute_output_duration_us": (
        "counter",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
    ),
    "nv_inference_pending_request_count": ("gauge", "Instantaneous number of pending requests awaiting execution per-model."),
    "nv_cache_num_hits_per_model": ("counter", "Number of cache hits per model"),
    "nv_cache_hit_duration_per_model": ("counter", "Total cache hit duration per model, in microseconds"),
    "nv_cache_num_misses_per_model": ("counter", "Number of cache misses per model"),
    "nv_cache_miss_duration_per_model": ("counter", "Total cache miss (insert+lookup) duration per model, in microseconds"),
    "nv_pinned_memory_pool_total_bytes": ("gauge", "Pinned memory pool total memory size, in bytes"),
    "nv_pinned_memory_pool_used_bytes": ("gauge", "Pinned memory pool used memory size, in bytes"),
    "nv_cpu_utilization": ("gauge", "CPU utilization rate [0.0 - 1.0]"),
    "nv_cpu_memory_total_bytes": ("gauge", "CPU total memory (RAM), in bytes"),
    "nv_cpu_memory_used_bytes": ("gauge", "CPU used memory (RAM), in bytes"),
}
OWN = {
    "despina_replicas": ("gauge", "Replica processes on this machine, by the state they are in"),
    "despina_replica_deaths_total": ("counter", "Replica processes that ended otherwise than by an orderly stop, by error code"),
    "despina_requests_total": ("counter", "Requests answered, by function, version and error code (ok for none)"),
    "despina_failure_duration_us": ("counter", "Cumulative duration in microseconds of inference requests that failed"),
    "despina_last_inference_ms": ("gauge", "When a version last ran a batch, in milliseconds since the epoch"),
    "despina_batches_total": ("counter", "Batches run, by their size in rows"),
    "despina_batch_input_us_total": ("counter", "Cumulative input preparation of batches in microseconds, by their size in rows"),
    "despina_batch_infer_us_total": ("counter", "Cumulative execution of batches in microseconds, by their size in rows"),
    "despina_batch_output_us_total": ("counter", "Cumulative output extraction of batches in microseconds, by their size in rows"),
}
FAMILIES = TRITON | OWN
_PHASE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class NodeMetrics(Collector):
    """What a node counts itself, and all pages of its machine. ``replicas()`` lists the living ones. One owner, one thread."""

    def __init__(self, pages: Pages, replicas: Callable[[], Iterable[ReplicaEvent]]) -> None:
        self._pages = pages
        self._replicas = replicas
        self._load = machine.Load()
        self._deaths: Counter[tuple[str, int, str]] = Counter()
        self._phases = Histogram(
            "despina_cold_start_seconds",
            "How long each phase of a replica's start took: placed, fetched, forked, imported, loaded, warmed, and total",
            ("function", "phase"),
            registry=None,
            buckets=_PHASE_BUCKETS,
        )

    def started(self, event: ReplicaEvent) -> None:
        """A replica became ready: its phases."""
        for phase, seconds in event.phases.items():
            self._phases.labels(event.name, phase).observe(seconds)
        self._phases.labels(event.name, "total").observe(sum(event.phases.values()))

    def died(self, event: ReplicaEvent, code: str) -> None:
        """A replica ended otherwise than by an orderly stop."""
        self._deaths[event.name, event.version, code] += 1

    def collect(self) -> Iterator[Metric]:
        """Every family of the table, in its order, then what else the pages name, then the cold starts."""
        families = {name: Metric(name, text, kind) for name, (kind, text) in FAMILIES.items()}
        for sample in (*self._pages.samples(), *self._own()):
            family = families.get(sample.family)
            if family is None:
                family = families[sample.family] = Metric(sample.family, f"{sample.family}, as its process counts it", sample.kind)
            family.add_sample(sample.family, sample.labels, sample.value)
        yield from families.values()
        yield from self._phases.collect()

    def _own(self) -> Iterator[Sample]:
        memory = machine.memory()
        yield Sample("nv_cpu_utilization", "gauge", {}, self._load.share())
        yield Sample("nv_cpu_memory_total_bytes", "gauge", {}, float(memory.total))
        yield Sample("nv_cpu_memory_used_bytes", "gauge", {}, float(memory.used))
        # This platform keeps no pinned pool; the two series are there because dashboards of Triton's divide one by the other.
        yield Sample("nv_pinned_memory_pool_total_bytes", "gauge", {}, 0.0)
        yield Sample("nv_pinned_memory_pool_used_bytes", "gauge", {}, 0.0)
        states = Counter((event.name, event.version, event.state) for event in self._replicas())
        for (name, version, state), count in sorted(states.items()):
            yield _count("despina_replicas", "gauge", name, version, count, state=State(state).value)
        for (name, version, code), count in sorted(self._deaths.items()):
            yield _count("despina_replica_deaths_total", "counter", name, version, count, code=code)


def _count(family: str, kind: str, name: str, version: int, value: int, **labels: str) -> Sample:
    return Sample(family, kind, {"function": name, "version": str(version), **labels}, float(value))
