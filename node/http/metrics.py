"""Prometheus metrics of one node, read when they are asked for: nothing is counted twice.

    tandemlog_<name>{cluster="…",node="…", …}

The store, the put path and the replication keep plain numbers; a scrape turns them into samples of
the families in metric_families.py. The text is made in a thread, since its length depends on how
many topics and groups there are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.protocol.versions import VERSION

from ..puts.ack_stats import AckStats
from ..roles.elected_roles import ElectionNumbers
from ..services.door_numbers import DoorNumbers
from .metric_families import FAMILIES, NOT_EXPORTED, SUMMARIES
from .metric_family import COMMON_LABELS, MetricKind
from .node_numbers import Histogram, NodeNumbers
from .workload import WorkloadNumbers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RENAMED = {
    "raw_chunks_total": "replicated_chunks_total",
    "raw_bytes_total": "replicated_bytes_total",
}
DOOR_FIELDS = {
    "rocketmq_connections": "connections",
    "rocketmq_clients": "clients",
    "rocketmq_parked_requests": "parked",
    "rocketmq_handed_on_total": "handed_on",
    "rocketmq_repeated_total": "repeated",
}
"""Families by door, and the field of DoorNumbers for each."""

Samples = Iterable[tuple[tuple[str, ...], float]]


class Families:
    """Makes families of samples, with the labels of one node."""

    def __init__(self, cluster: str, node: str) -> None:
        self._own = (cluster, node)

    def one(self, name: str, value: float) -> Metric:
        """A family with one sample, without labels of its own."""
        return self.many(name, [((), value)])

    def many(self, name: str, samples: Samples) -> Metric:
        """A gauge or a counter: (values of its own labels, value) each."""
        family = FAMILIES[name]
        kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
        metric = kind(family.full_name, family.meaning, labels=(*COMMON_LABELS, *family.labels))
        for labels, value in samples:
            metric.add_metric((*self._own, *labels), float(value))
        return metric

    def histogram(self, name: str, histogram: Histogram, *labels: str) -> Metric:
        """`histogram` may change meanwhile: the count is that of the buckets that were read."""
        family = FAMILIES[name]
        metric = HistogramMetricFamily(
            family.full_name, family.meaning, labels=(*COMMON_LABELS, *family.labels)
        )
        # the last bucket holds everything that is longer, too
        *rows, (_, count) = histogram.cumulative()
        buckets = [(f"{bound:g}", float(below)) for bound, below in rows]
        metric.add_metric((*self._own, *labels), [*buckets, ("+Inf", float(count))], histogram.sum)
        return metric


def families_of(
    make: Families, numbers: NodeNumbers, workload: WorkloadNumbers
) -> Iterator[Metric]:
    """Everything that a node exports of itself."""
    yield from _node(make, numbers)
    yield from _positions(make, numbers)
    yield from _in_sync_set(make, numbers)
    yield from _acks(make, numbers.acks, numbers.ack_mode)
    if numbers.elections is not None:
        yield from _elections(make, numbers.elections)
    yield from _topics(make, workload)
    yield from _groups(make, numbers, workload)
    yield make.many(
        "delayed_messages_by_due", [((due,), count) for due, count in workload.delayed.items()]
    )
    for name, histogram in numbers.histograms.items():
        yield make.histogram(name, histogram)
    yield from _counters(make, numbers.values)
    yield make.one("calls_started_total", numbers.calls_total)
    yield make.one("connections", numbers.connections)
    yield make.many(
        "calls_refused_total", [((code,), count) for code, count in sorted(numbers.refused.items())]
    )
    if numbers.doors:
        yield from _doors(make, sorted(numbers.doors.items()))


def _node(make: Families, numbers: NodeNumbers) -> Iterator[Metric]:
    yield make.many("build_info", [((VERSION,), 1)])
    yield make.one("role", numbers.own.role == common_pb2.MASTER)
    yield make.one("can_ack", numbers.can_ack)
    yield make.one("store_failed", numbers.store_failed)
    yield make.one("clock_jump_seconds", numbers.clock_jump_ms / 1000)
    yield make.one("unreadable_files", numbers.unreadable_files)
    if numbers.certificate_expiry_s is not None:
        yield make.one("certificate_expiry_seconds", numbers.certificate_expiry_s)


def _positions(make: Families, numbers: NodeNumbers) -> Iterator[Metric]:
    own = numbers.own
    yield make.one("epoch", own.epoch)
    yield make.one("log_min_offset", own.min_offset)
    yield make.one("log_end_offset", own.wrote_offset)
    yield make.one("durable_offset", own.flushed_offset)
    yield make.one("confirm_offset", own.confirm_offset)
    yield make.one("dispatch_behind_bytes", max(0, own.confirm_offset - own.reput_offset))
    yield make.one("disk_free_bytes", numbers.disk_free_bytes)
    yield make.one("disk_size_bytes", numbers.disk_size_bytes)


def _in_sync_set(make: Families, numbers: NodeNumbers) -> Iterator[Metric]:
    members = numbers.members
    slaves = [member for member in members if member.role == common_pb2.SLAVE]
    size = sum(member.in_sync for member in members)
    yield make.one("isr_size", size)
    yield make.one("isr_min", numbers.min_in_sync)
    yield make.one("under_min_isr", size < numbers.min_in_sync)
    yield make.many("isr_member", [((each.node_id,), each.in_sync) for each in members])
    yield make.many("replication_lag_bytes", [((each.node_id,), each.lag_bytes) for each in slaves])
    yield make.many(
        "replication_lag_seconds", [((each.node_id,), each.lag_seconds) for each in slaves]
    )
    others = {each.node_id for each in members} - {numbers.own.node_id} | set(numbers.alarms)
    yield make.many("alarms", [((peer,), peer in numbers.alarms) for peer in sorted(others)])


def _acks(make: Families, acks: AckStats, mode: str) -> Iterator[Metric]:
    yield make.many("acks_total", [((result,), count) for result, count in acks.results.items()])
    yield make.histogram("ack_seconds", acks.seconds, mode)


def _elections(make: Families, elections: ElectionNumbers) -> Iterator[Metric]:
    yield make.one("leader_lease_remaining_seconds", elections.lease_remaining_s)
    yield make.one("coordinator_last_success_age_seconds", elections.coordinator_age_s)
    yield make.one("coordinator_last_accepted_age_seconds", elections.accepted_age_s)
    yield make.one("coordinator_epoch", elections.record_epoch)
    yield make.one("paused", elections.paused)
    yield make.one("elections_total", elections.terms_won)
    yield make.one("unclean_epoch", elections.unclean_epoch)
    yield make.one("incarnation_changes_total", elections.incarnation_changes)


def _topics(make: Families, workload: WorkloadNumbers) -> Iterator[Metric]:
    rows = sorted(workload.topics.items())
    yield make.many("messages_in_total", [((topic,), each.messages_in) for topic, each in rows])
    yield make.many("bytes_in_total", [((topic,), each.bytes_in) for topic, each in rows])
    yield make.many("messages_out_total", [((topic,), each.messages_out) for topic, each in rows])
    yield make.many("bytes_out_total", [((topic,), each.bytes_out) for topic, each in rows])
    yield make.one("metric_topics_folded", workload.folded_topics)


def _groups(make: Families, numbers: NodeNumbers, workload: WorkloadNumbers) -> Iterator[Metric]:
    lags, groups = sorted(workload.lags.items()), sorted(numbers.groups.items())
    yield make.many("consumer_lag_messages", [(pair, each.messages) for pair, each in lags])
    yield make.many("consumer_lag_seconds", [(pair, each.seconds) for pair, each in lags])
    yield make.many("group_members", [((group,), each.members) for group, each in groups])
    yield make.many(
        "group_messages_out_total", [((group,), each.messages) for group, each in groups]
    )
    yield make.many("group_bytes_out_total", [((group,), each.bytes) for group, each in groups])
    yield make.many("group_commits_total", [((group,), each.commits) for group, each in groups])
    yield make.one("metric_groups_folded", max(workload.folded_lags, numbers.folded_groups))


def _doors(make: Families, doors: Sequence[tuple[str, DoorNumbers]]) -> Iterator[Metric]:
    requests = [
        ((door, *row), count)
        for door, each in doors
        for row, count in sorted(each.requests.items())
    ]
    yield make.many("rocketmq_requests_total", requests)
    for name, field in DOOR_FIELDS.items():
        yield make.many(name, [((door,), getattr(each, field)) for door, each in doors])


def _counters(make: Families, values: Mapping[str, float]) -> Iterator[Metric]:
    for name, value in values.items():
        family = _RENAMED.get(name, name)
        if family in FAMILIES:
            yield make.one(family, value)
        elif name not in NOT_EXPORTED and not name.startswith(SUMMARIES):
            raise KeyError(f"the number {name} has no family: add it to metric_families.py")


class NodeCollector(Collector):
    """The families of one scrape."""

    def __init__(self, make: Families, numbers: NodeNumbers) -> None:
        self._make = make
        self._numbers = numbers

    def collect(self) -> Iterable[Metric]:
        return families_of(self._make, self._numbers, self._numbers.workload())


class Metrics:
    """The text of /metrics."""

    def __init__(self, cluster: str, node: str) -> None:
        self._make = Families(cluster, node)
        # of the process: all that it needs is in /proc
        self._process = ProcessCollector(registry=None)

    def text(self, numbers: NodeNumbers) -> bytes:
        """Runs in a thread: one call at a time."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(NodeCollector(self._make, numbers))
        registry.register(self._process)
        return generate_latest(registry)
