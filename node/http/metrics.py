"""Prometheus metrics of one node, read when they are asked for: nothing is counted twice.

    tandemlog_<name>{cluster="…",node="…"}

The store, the put path and the replication keep plain numbers; a scrape turns them into samples.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from storage.stats import LatencyHistogram
from tandemlog.v1 import common_pb2

from ..puts.ack_stats import AckStats
from ..roles.election_numbers import ElectionNumbers
from .health import NodeNumbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "tandemlog_"
_LABELS = ("cluster", "node")


class NodeCollector(Collector):
    """Asks `numbers()` at each scrape."""

    def __init__(self, cluster: str, node: str, numbers: Callable[[], NodeNumbers]) -> None:
        self._labels = (cluster, node)
        self._numbers = numbers

    def collect(self) -> Iterable[Metric]:
        numbers = self._numbers()
        yield from self._positions(numbers)
        yield from self._in_sync_set(numbers)
        yield from self._acks(numbers.acks, numbers.ack_mode)
        if numbers.elections is not None:
            yield from self._of_elections(numbers.elections)
        for name, value in numbers.values.items():
            if name.endswith("_total"):
                yield self._counter(name.removesuffix("_total"), "of the store", value)
            else:
                yield self._gauge(name, "of the store", value)

    def _positions(self, numbers: NodeNumbers) -> Iterable[Metric]:
        own = numbers.own
        yield self._gauge("role", "1 on the master, 0 on a slave", own.role == common_pb2.MASTER)
        yield self._gauge("epoch", "current epoch of the node", own.epoch)
        yield self._gauge("can_ack", "1 if a put can be acknowledged now", numbers.can_ack)
        yield self._gauge(
            "alarms", "nodes that hold acknowledged messages which this master may lack",
            numbers.alarms,
        )  # fmt: skip
        yield self._gauge("log_min_offset", "first byte of the log", own.min_offset)
        yield self._gauge("log_end_offset", "end of the log", own.wrote_offset)
        yield self._gauge("durable_offset", "flushed up to here", own.flushed_offset)
        yield self._gauge("confirm_offset", "confirmed up to here", own.confirm_offset)
        yield self._gauge(
            "dispatch_behind_bytes",
            "confirmed but not yet dispatched to queues and index",
            max(0, own.confirm_offset - own.reput_offset),
        )
        yield self._gauge("disk_free_bytes", "free on the store's disk", numbers.disk_free_bytes)

    def _in_sync_set(self, numbers: NodeNumbers) -> Iterable[Metric]:
        members = numbers.members
        size = sum(member.in_sync for member in members)
        yield self._gauge("isr_size", "in-sync replicas, master included", size)
        yield self._gauge("isr_min", "in-sync replicas that a put requires", numbers.min_in_sync)
        yield self._gauge(
            "under_min_isr",
            "1 if there are fewer in-sync replicas than a put requires",
            size < numbers.min_in_sync,
        )
        labels = (*_LABELS, "peer")
        in_sync = GaugeMetricFamily(f"{_PREFIX}isr_member", "1 if in sync", labels=labels)
        lag_bytes = GaugeMetricFamily(
            f"{_PREFIX}replication_lag_bytes", "behind the master's log end", labels=labels
        )
        lag_seconds = GaugeMetricFamily(
            f"{_PREFIX}replication_lag_seconds", "since it last had the whole log", labels=labels
        )
        for member in members:
            values = (*self._labels, member.node_id)
            in_sync.add_metric(values, member.in_sync)
            if member.role == common_pb2.SLAVE:
                lag_bytes.add_metric(values, member.lag_bytes)
                lag_seconds.add_metric(values, member.lag_seconds)
        yield from (in_sync, lag_bytes, lag_seconds)

    def _of_elections(self, elections: ElectionNumbers) -> Iterable[Metric]:
        yield self._gauge(
            "leader_lease_remaining_seconds",
            "how long this master may still count on its lease; 0 on other nodes",
            elections.lease_remaining_s,
        )
        yield self._gauge(
            "coordinator_last_success_age_seconds",
            "since the coordinator was heard; -1 if never",
            elections.coordinator_age_s,
        )
        yield self._gauge("paused", "1 while failover is paused", elections.paused)
        yield self._counter(
            "elections", "terms that this node has begun since its start", elections.terms_won
        )
        yield self._counter(
            "incarnation_changes",
            "how often its disk joined as a new one since its start",
            elections.incarnation_changes,
        )

    def _acks(self, acks: AckStats, mode: str) -> Iterable[Metric]:
        results = CounterMetricFamily(
            f"{_PREFIX}acks", "responses to put requests", labels=(*_LABELS, "result")
        )
        for result, count in acks.results.items():
            results.add_metric((*self._labels, result), count)
        yield results
        seconds = HistogramMetricFamily(
            f"{_PREFIX}ack_seconds", "request to acknowledgement", labels=(*_LABELS, "mode")
        )
        seconds.add_metric((*self._labels, mode), _buckets(acks.seconds), acks.seconds.sum)
        yield seconds

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"{_PREFIX}{name}", help_text, labels=_LABELS)
        family.add_metric(self._labels, float(value))
        return family

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"{_PREFIX}{name}", help_text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family


def _buckets(histogram: LatencyHistogram) -> list[tuple[str, float]]:
    rows = [(f"{bound:g}", float(count)) for bound, count in histogram.cumulative()]
    return [*rows, ("+Inf", float(histogram.count))]


class Metrics:
    """The text of /metrics."""

    def __init__(self, cluster: str, node: str, numbers: Callable[[], NodeNumbers]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(NodeCollector(cluster, node, numbers))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)
