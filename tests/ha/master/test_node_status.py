"""The table of nodes, as the master and a slave show it."""

from dataclasses import replace

from fakes.fake_store import FakeDisk, FakeStore
from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.node_status import merged, own_status, row_of, slave_rows
from tandemlog_server.ha.protocol.frames import PREPARING, Ack, Hello
from tandemlog_server.ha.state import InSyncRecord, Member

ME = Member("m", "mi")
HELLO = Hello(
    "c", "a", "1", endpoint="a:1", http_endpoint="a:2", epochs=(EpochEntry(1, 0),),
    max_offset=900, file_size=4096, store_host="h:1",
)  # fmt: skip


def group() -> MasterGroup:
    view = master_view(EpochEntry(1, 0), epoch=1)
    config = HaConfig("c", "m", mode=Replication.SYNC, min_in_sync=2)
    record = InSyncRecord(1, 1, frozenset({ME, Member("b", "1")}))
    return MasterGroup(config, ME, view, record, 1000, 100.0)


def test_a_member_that_was_never_seen_is_unreachable() -> None:
    (row,) = slave_rows(group(), 102.0)
    assert (row.node_id, row.state, row.in_sync) == ("b", "unreachable", True)
    assert (row.detail, row.lag_bytes, row.lag_seconds) == ("no stream from this slave", 1000, 2.0)


def test_a_slave_shows_what_it_acknowledged() -> None:
    made = group()
    session = made.open(100.0)
    made.receive(session, HELLO, 100.0)
    row = slave_rows(made, 100.5)[0]
    assert (row.state, row.lag_bytes, row.lag_seconds) == ("catching-up", 100, 0.5)
    session.pump(100.5)
    made.receive(session, Ack(1, "1", 950, 1000, 800), 101.0)
    row = slave_rows(made, 101.0)[0]
    assert (row.flushed_offset, row.wrote_offset, row.reput_offset) == (950, 1000, 800)
    assert (row.endpoint, row.http_endpoint, row.incarnation) == ("a:1", "a:2", "1")
    made.receive(session, Ack(1, "1", 1000, 1000, 1000), 102.0)
    record = made.tick(102.0)
    assert record is None, "it waits its time"
    made.receive(session, Ack(1, "1", 1000, 1000, 1000), 103.0)
    record = made.tick(103.0)
    assert record is not None
    made.persisted(record)
    row = slave_rows(made, 103.0)[0]
    assert (row.state, row.in_sync, row.lag_bytes, row.lag_seconds) == ("in-sync", True, 0, 0.0)


def test_a_slave_that_prepares_is_there() -> None:
    made = group()
    session = made.open(100.0)
    made.receive(session, HELLO, 100.0)
    made.receive(session, Ack(1, "1", 0, state=PREPARING), 110.0)
    row = slave_rows(made, 111.0)[0]
    assert (row.state, row.detail.split(":")[0]) == ("catching-up", "preparing")
    assert row.lag_bytes == 100
    made.receive(session, Ack(1, "1", 900), 111.0)
    assert slave_rows(made, 111.0)[0].detail == "not caught up yet"


def test_faults_and_silence_show() -> None:
    made = group()
    session = made.open(100.0)
    made.receive(session, HELLO, 100.0)
    made.receive(session, Ack(1, "1", 900, state="fdatasync: EIO"), 100.0)
    row = slave_rows(made, 100.0)[0]
    assert (row.state, row.detail) == ("read-only", "fdatasync: EIO")
    assert slave_rows(made, 104.0)[0].state == "unreachable"
    made.closed(session, "gone")
    assert slave_rows(made, 101.0)[0].state == "unreachable"


def test_an_alarm_shows_at_the_slave_that_raised_it() -> None:
    made = group()
    late = made.open(100.0)
    made.receive(late, replace(HELLO, node_id="b", accepted_epoch=7), 100.0)
    row = slave_rows(made, 100.0)[0]
    assert row.state == "refused"
    assert "has seen epoch 7" in row.alarm


def test_a_refused_slave_is_listed_though_it_never_was_in_the_set() -> None:
    """After a restart on an empty store the master knows none of those that hold the messages."""
    made = group()
    made.set.record = InSyncRecord(1, 1, frozenset({made.me}), known=frozenset({made.me.node_id}))
    late = made.open(100.0)
    made.receive(late, replace(HELLO, node_id="z", accepted_epoch=7, endpoint="z:1"), 100.0)
    assert set(made.alarms) == {"z"}
    row = next(row for row in slave_rows(made, 100.0) if row.node_id == "z")
    assert (row.state, row.endpoint, row.in_sync) == ("refused", "z:1", False)


def test_a_slave_shows_the_masters_rows_and_its_own_fresh_one() -> None:
    store = FakeStore(FakeDisk())
    own = own_status(store, HaConfig("c", "a"), epoch=1, incarnation="1", uptime_s=5.0)
    told = [
        common_pb2.NodeStatus(node_id="m", role=common_pb2.MASTER, state="running"),
        common_pb2.NodeStatus(node_id="a", in_sync=True, lag_bytes=7),
        common_pb2.NodeStatus(node_id="b", state="in-sync"),
    ]
    rows = merged(told, own, "")
    assert [row.node_id for row in rows] == ["m", "b", "a"]
    assert (rows[-1].in_sync, rows[-1].lag_bytes, rows[-1].uptime_seconds) == (True, 7, 5.0)
    rows = merged(told, own, "UNAVAILABLE")
    assert (rows[0].state, rows[0].detail) == ("unreachable", "UNAVAILABLE")
    assert not rows[-1].in_sync
    assert told[0].state == "running"
    assert row_of(rows, "x") is None
