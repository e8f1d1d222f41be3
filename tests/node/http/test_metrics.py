"""The text of /metrics."""

from node.http.health import NodeNumbers
from node.http.metrics import Metrics
from node.puts.ack_stats import AckStats
from node.roles.election_numbers import ElectionNumbers
from tandemlog.v1 import broker_pb2, common_pb2


def numbers() -> NodeNumbers:
    master = common_pb2.NodeStatus(
        node_id="n0",
        role=common_pb2.MASTER,
        epoch=3,
        wrote_offset=500,
        confirm_offset=400,
        reput_offset=390,
        in_sync=True,
    )
    slave = common_pb2.NodeStatus(node_id="n1", role=common_pb2.SLAVE, lag_bytes=100)
    acks = AckStats()
    acks.record(broker_pb2.PUT_OK, 0.002)
    acks.record(broker_pb2.FLUSH_SLAVE_TIMEOUT, 5.0)
    return NodeNumbers(
        own=master,
        members=[master, slave],
        can_ack=True,
        min_in_sync=2,
        values={"puts_total": 7, "uptime_seconds": 1.5},
        acks=acks,
        ack_mode="sync-sync",
        disk_free_bytes=10,
        alarms=1,
        elections=ElectionNumbers(4.5, 0.25, True, 2, 1),
    )


def test_every_sample_has_its_labels() -> None:
    text = Metrics("c", "n0", numbers).text().decode()
    for line in (
        'tandemlog_role{cluster="c",node="n0"} 1.0',
        'tandemlog_epoch{cluster="c",node="n0"} 3.0',
        'tandemlog_dispatch_behind_bytes{cluster="c",node="n0"} 10.0',
        'tandemlog_alarms{cluster="c",node="n0"} 1.0',
        'tandemlog_leader_lease_remaining_seconds{cluster="c",node="n0"} 4.5',
        'tandemlog_coordinator_last_success_age_seconds{cluster="c",node="n0"} 0.25',
        'tandemlog_paused{cluster="c",node="n0"} 1.0',
        'tandemlog_elections_total{cluster="c",node="n0"} 2.0',
        'tandemlog_incarnation_changes_total{cluster="c",node="n0"} 1.0',
        'tandemlog_isr_size{cluster="c",node="n0"} 1.0',
        'tandemlog_under_min_isr{cluster="c",node="n0"} 1.0',
        'tandemlog_isr_member{cluster="c",node="n0",peer="n1"} 0.0',
        'tandemlog_replication_lag_bytes{cluster="c",node="n0",peer="n1"} 100.0',
        'tandemlog_acks_total{cluster="c",node="n0",result="ok"} 1.0',
        'tandemlog_acks_total{cluster="c",node="n0",result="timeout"} 1.0',
        'tandemlog_ack_seconds_count{cluster="c",mode="sync-sync",node="n0"} 1.0',
        'tandemlog_puts_total{cluster="c",node="n0"} 7.0',
        'tandemlog_uptime_seconds{cluster="c",node="n0"} 1.5',
    ):
        assert line in text.splitlines()
    assert "process_resident_memory_bytes" in text
