"""The text of /metrics."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.http.metric_families import (
    FAMILIES,
    NOT_EXPORTED,
    SECTIONS,
    SUMMARIES,
)
from tandemlog_server.node.http.metric_family import MetricKind
from tandemlog_server.node.http.metrics import Metrics
from tandemlog_server.node.http.monitoring_docs import monitoring_markdown
from tandemlog_server.node.http.node_numbers import NodeNumbers
from tandemlog_server.node.http.workload import Lag, TopicNumbers, WorkloadNumbers
from tandemlog_server.node.pulls.group_activity import GroupNumbers
from tandemlog_server.node.puts.ack_stats import AckStats
from tandemlog_server.node.roles.elected_roles import ElectionNumbers
from tandemlog_server.node.services.door_numbers import DoorNumbers
from tandemlog_server.storage.stats import LatencyHistogram, StoreStats
from tandemlog_server.storage.traffic import SizeHistogram

ROOT = Path(__file__).resolve().parent.parent.parent.parent
OF_THE_NODE = (
    "flush_behind_bytes", "confirm_behind_bytes", "reput_behind_bytes", "puts_waiting", "calls",
    "streams", "long_polls", "answer_bytes", "group_rebalances_total",
    "group_fenced_commits_total", "group_members_removed_total", "groups_with_members",
    "groups_reconciling", "delayed_messages", "delayed_overdue_seconds",
    "delayed_delivered_total", "delayed_recalled_total", "delayed_set_aside_total",
    "delayed_rolled_total", "work_unacked", "work_leased", "work_oldest_unacked_seconds",
    "work_receives_waiting", "work_delivered_total", "work_redelivered_total",
    "work_acknowledged_total", "work_retried_total", "work_expired_total",
    "work_set_aside_total", "work_dead_letters_total", "work_invalid_handles_total",
    "delayed_rolled_total", "transactions_open", "transactions_oldest_seconds",
    "transactions_committed_total", "transactions_rolled_back_total",
    "transactions_given_up_total", "transactions_checks_total", "transactions_finished_total",
    "scrub_bytes_total", "scrub_damaged_blocks_total", "scrub_mended_blocks_total",
    "scrub_failed_mendings_total", "scrub_rebuilt_queues_total", "scrub_lost_blocks",
    "scrub_doubtful_blocks", "scrub_round_age_seconds", "scrub_mended_index_entries_total",
    "archive_working", "archive_failed",
    "archive_end_offset", "archive_behind_bytes", "archive_put_bytes_total",
    "archive_read_messages_total", "archive_read_bytes_total", "archive_read_seconds_total",
    "archive_read_failures_total", "archive_cache_hits_total", "archive_cache_misses_total",
    "archive_cache_bytes",
)  # fmt: skip


def sizes(*sizes: int) -> SizeHistogram:
    made = SizeHistogram()
    made.add_many(np.array(sizes, dtype=">i4"))
    return made


def histogram(*seconds: float) -> LatencyHistogram:
    made = LatencyHistogram()
    for each in seconds:
        made.record(each)
    return made


def workload() -> WorkloadNumbers:
    return WorkloadNumbers(
        topics={"t": TopicNumbers(3, 300, 2, 200), 'a"b\\': TopicNumbers(1, 10, 0, 0)},
        lags={("g", "t"): Lag(7, 1.5)},
        folded_topics=4,
        folded_lags=2,
        delayed={"now": 1, "1h": 6},
    )


DOOR = DoorNumbers(
    {("PULL_MESSAGE", "PULL_NOT_FOUND"): 3},
    connections=4,
    clients=2,
    members={"g": 2},
    parked=7,
    handed_on=9,
    repeated=1,
)


def numbers(**changed: object) -> NodeNumbers:
    master = common_pb2.NodeStatus(
        node_id="n0",
        role=common_pb2.MASTER,
        epoch=3,
        wrote_offset=500,
        flushed_offset=450,
        confirm_offset=400,
        reput_offset=390,
        in_sync=True,
    )
    slave = common_pb2.NodeStatus(
        node_id="n1", role=common_pb2.SLAVE, lag_bytes=100, lag_seconds=0.5
    )
    acks = AckStats()
    acks.record(broker_pb2.PUT_OK, 0.002)
    acks.record(broker_pb2.FLUSH_SLAVE_TIMEOUT, 5.0)
    values = {
        "own": master,
        "members": [master, slave],
        "can_ack": True,
        "min_in_sync": 2,
        "values": {**StoreStats(0.0).values(1.5), **dict.fromkeys(OF_THE_NODE, 2)},
        "acks": acks,
        "ack_mode": "sync-sync",
        "disk_free_bytes": 10,
        "disk_size_bytes": 40,
        "alarms": {"n1": "it holds more"},
        "elections": ElectionNumbers(4.5, 0.25, 0.75, 3, True, 2, 1, 9),
        "histograms": {
            "message_size_bytes": sizes(100, 300, 300),
            **{
                name: histogram(0.0015)
                for name in ("append_seconds", "flush_seconds", "confirm_seconds", "pull_seconds")
            },
        },
        "groups": {"g": GroupNumbers(5, 500, 2, 1)},
        "folded_groups": 3,
        "calls_total": 11,
        "refused": {"busy": 2},
        "connections": 6,
        "doors": {"remoting": DOOR},
        "workload": workload,
        "certificate_expiry_s": 1_900_000_000.0,
    }
    return NodeNumbers(**{**values, **changed})  # type: ignore[arg-type]


def scrape(**changed: object) -> str:
    return Metrics("c", "n0").text(numbers(**changed)).decode()


def test_every_sample_has_its_labels() -> None:
    text = scrape()
    for line in (
        'tandemlog_role{cluster="c",node="n0"} 1.0',
        'tandemlog_epoch{cluster="c",node="n0"} 3.0',
        'tandemlog_dispatch_behind_bytes{cluster="c",node="n0"} 10.0',
        'tandemlog_disk_size_bytes{cluster="c",node="n0"} 40.0',
        'tandemlog_alarms{cluster="c",node="n0",peer="n1"} 1.0',
        'tandemlog_leader_lease_remaining_seconds{cluster="c",node="n0"} 4.5',
        'tandemlog_coordinator_last_success_age_seconds{cluster="c",node="n0"} 0.25',
        'tandemlog_paused{cluster="c",node="n0"} 1.0',
        'tandemlog_elections_total{cluster="c",node="n0"} 2.0',
        'tandemlog_unclean_epoch{cluster="c",node="n0"} 9.0',
        'tandemlog_incarnation_changes_total{cluster="c",node="n0"} 1.0',
        'tandemlog_isr_size{cluster="c",node="n0"} 1.0',
        'tandemlog_under_min_isr{cluster="c",node="n0"} 1.0',
        'tandemlog_isr_member{cluster="c",node="n0",peer="n1"} 0.0',
        'tandemlog_replication_lag_bytes{cluster="c",node="n0",peer="n1"} 100.0',
        'tandemlog_replication_lag_seconds{cluster="c",node="n0",peer="n1"} 0.5',
        'tandemlog_acks_total{cluster="c",node="n0",result="ok"} 1.0',
        'tandemlog_acks_total{cluster="c",node="n0",result="timeout"} 1.0',
        'tandemlog_ack_seconds_count{cluster="c",mode="sync-sync",node="n0"} 1.0',
        'tandemlog_messages_in_total{cluster="c",node="n0",topic="t"} 3.0',
        'tandemlog_bytes_in_total{cluster="c",node="n0",topic="t"} 300.0',
        'tandemlog_messages_out_total{cluster="c",node="n0",topic="t"} 2.0',
        'tandemlog_bytes_out_total{cluster="c",node="n0",topic="t"} 200.0',
        'tandemlog_messages_in_total{cluster="c",node="n0",topic="a\\"b\\\\"} 1.0',
        'tandemlog_consumer_lag_messages{cluster="c",group="g",node="n0",topic="t"} 7.0',
        'tandemlog_consumer_lag_seconds{cluster="c",group="g",node="n0",topic="t"} 1.5',
        'tandemlog_delayed_messages_by_due{cluster="c",due="1h",node="n0"} 6.0',
        'tandemlog_group_members{cluster="c",group="g",node="n0"} 1.0',
        'tandemlog_group_messages_out_total{cluster="c",group="g",node="n0"} 5.0',
        'tandemlog_metric_topics_folded{cluster="c",node="n0"} 4.0',
        'tandemlog_metric_groups_folded{cluster="c",node="n0"} 3.0',
        'tandemlog_calls_refused_total{cluster="c",code="busy",node="n0"} 2.0',
        'tandemlog_connections{cluster="c",node="n0"} 6.0',
        'tandemlog_rocketmq_requests_total{cluster="c",door="remoting",node="n0",'
        'request="PULL_MESSAGE",result="PULL_NOT_FOUND"} 3.0',
        'tandemlog_rocketmq_connections{cluster="c",door="remoting",node="n0"} 4.0',
        'tandemlog_rocketmq_clients{cluster="c",door="remoting",node="n0"} 2.0',
        'tandemlog_rocketmq_parked_requests{cluster="c",door="remoting",node="n0"} 7.0',
        'tandemlog_rocketmq_handed_on_total{cluster="c",door="remoting",node="n0"} 9.0',
        'tandemlog_rocketmq_repeated_total{cluster="c",door="remoting",node="n0"} 1.0',
        'tandemlog_certificate_expiry_seconds{cluster="c",node="n0"} 1.9e+09',
        'tandemlog_uptime_seconds{cluster="c",node="n0"} 1.5',
    ):
        assert line in text.splitlines()
    assert "process_resident_memory_bytes" in text


def test_a_histogram_has_bounds_that_double_and_a_sum() -> None:
    lines = scrape(histograms={"flush_seconds": histogram(0.0015, 0.0015, 100.0)}).splitlines()
    rows = [line for line in lines if line.startswith("tandemlog_flush_seconds_")]
    counts = {
        found[1]: float(row.rsplit(" ", 1)[1])
        for row in rows
        if (found := re.search(r'le="([^"]+)"', row))
    }
    assert counts["+Inf"] == 3
    bounds = [float(each) for each in counts if each != "+Inf"]
    for each, after in itertools.pairwise(bounds):
        assert after == pytest.approx(2 * each, rel=1e-4)
    below = [counts[each] for each in counts if each != "+Inf" and float(each) < 0.0015]
    above = [counts[each] for each in counts if each != "+Inf" and 0.0015 <= float(each) < 60]
    assert set(below) == {0.0}
    assert set(above) == {2.0}
    assert rows[-1].startswith("tandemlog_flush_seconds_sum")
    assert float(rows[-1].rsplit(" ", 1)[1]) == pytest.approx(100.003)


def test_what_is_exported_is_the_table() -> None:
    """Name, type, help text and labels; nothing is left out and nothing is twice."""
    exported = [
        each
        for each in text_string_to_metric_families(scrape())
        if each.name.startswith("tandemlog_")
    ]
    assert len({each.name for each in exported}) == len(exported)
    names = {each.name + ("_total" if each.type == "counter" else ""): each for each in exported}
    assert set(names) == {family.full_name for family in FAMILIES.values()}
    for family in FAMILIES.values():
        found = names[family.full_name]
        assert (found.type, found.documentation) == (family.kind.value, family.meaning)
        for sample in found.samples:
            assert set(sample.labels) - {"le"} == {"cluster", "node", *family.labels}


def test_families_are_named_as_prometheus_wants_it() -> None:
    assert len(FAMILIES) == sum(len(section.families) for section in SECTIONS)
    for family in FAMILIES.values():
        assert (family.kind is MetricKind.COUNTER) == family.name.endswith("_total"), family.name
        assert family.meaning.endswith("."), family.name
        assert len(family.meaning) > 15, family.name
        for unit in ("seconds", "bytes"):
            if family.unit == unit and family.kind is not MetricKind.COUNTER:
                assert family.name.endswith((unit, "_offset")), family.name


def test_every_number_of_the_node_is_exported_or_is_another_family() -> None:
    for name in (*StoreStats(0.0).values(1.0), *OF_THE_NODE):
        known = name in FAMILIES or name in NOT_EXPORTED or name.startswith(SUMMARIES)
        assert known, f"{name}: add a family, or say in NOT_EXPORTED what tells the same"
    with pytest.raises(KeyError, match="new_total has no family"):
        scrape(values={"new_total": 1})


def test_without_elections_and_tls_their_families_are_left_out() -> None:
    text = scrape(elections=None, certificate_expiry_s=None)
    assert "tandemlog_paused" not in text
    assert "tandemlog_certificate_expiry_seconds" not in text


def test_the_page_is_up_to_date() -> None:
    held = (ROOT / "docs" / "monitoring.md").read_text()
    assert held == monitoring_markdown(), "run `make docs`: docs/monitoring.md is out of date"
