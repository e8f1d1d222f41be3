"""Slaves of another protocol in the in-sync set: they count, and an idle one may be silent."""

from dataclasses import replace

from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.foreign_slaves import FOREIGN_SILENCE_S, foreign_hello
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.node_status import slave_rows
from tandemlog_server.ha.master.session import MasterSession
from tandemlog_server.ha.protocol.frames import Ack, Hello
from tandemlog_server.ha.state import InSyncRecord, Member

ME = Member("m", "mi")
BROKER = Member("rocketmq:10.0.0.9", "rocketmq")


def group(*, required: int = 2, members: frozenset[Member] = frozenset({ME})) -> MasterGroup:
    config = HaConfig("c", "m", mode=Replication.SYNC, min_in_sync=required)
    view = master_view(EpochEntry(1, 0))
    return MasterGroup(config, ME, view, InSyncRecord(3, 1, members), 1000, 100.0)


def hello(offset: int) -> Hello:
    return foreign_hello("c", BROKER.node_id, BROKER.incarnation, offset, "RocketMQ")


def attach(made: MasterGroup, offset: int, now: float = 100.0) -> MasterSession:
    session = made.attach_foreign(hello(offset), offset, now)
    assert session is not None
    acknowledge(made, session, offset, now)
    return session


def acknowledge(made: MasterGroup, session: MasterSession, offset: int, now: float) -> None:
    made.receive(session, Ack(3, BROKER.incarnation, offset, received=offset), now)


def grow(made: MasterGroup, end: int, now: float) -> int:
    return made.positions(own=end, end=end, minimum=0, now=now)


def settle(made: MasterGroup, now: float) -> frozenset[Member]:
    """What a tick makes of the set."""
    record = made.tick(now)
    if record is not None:
        made.persisted(record)
    return made.set.members


def test_it_joins_and_its_acknowledgements_confirm() -> None:
    made = group()
    made.needed_tables = {"topics": 7}
    session = attach(made, 1000)
    assert settle(made, 100.0) == {ME, BROKER}, "it fetches the tables by itself"
    assert made.tracker.value == 1000
    assert grow(made, 1200, 100.1) == 1000
    session.sent = 1200
    acknowledge(made, session, 1200, 100.2)
    assert made.tracker.value == 1200
    assert made.admission(100.2) is None
    assert made.tables_held("topics", 8)


def test_an_idle_one_stays_although_it_is_silent_for_seconds() -> None:
    made = group(required=1)
    attach(made, 1000)
    for step in range(1, 190):
        assert settle(made, 100.0 + step / 10) >= ({BROKER} if step > 15 else set())
    (row,) = slave_rows(made, 118.9)
    assert (row.node_id, row.state, row.endpoint) == (BROKER.node_id, "in-sync", "")
    assert row.lag_seconds == 0.0


def test_one_that_owes_an_acknowledgement_leaves_by_the_lag_rule() -> None:
    made = group(required=1)
    session = attach(made, 1000)
    for step in range(1, 20):
        settle(made, 100.0 + step / 10)
    assert BROKER in made.set.members
    grow(made, 1200, 102.0)
    session.sent = 1200
    for step in range(1, 30):
        assert BROKER in settle(made, 101.9 + step / 10)
    assert BROKER not in settle(made, 105.1)


def test_one_that_is_not_sent_the_log_leaves_too() -> None:
    """It reads nothing: what it was sent it has acknowledged, but it gets no further."""
    made = group(required=1)
    attach(made, 1000)
    for step in range(1, 20):
        settle(made, 100.0 + step / 10)
    for step in range(1, 33):
        grow(made, 1000 + 100 * step, 102.0 + step / 10)
        settle(made, 102.0 + step / 10)
    assert BROKER not in made.set.members


def test_the_idle_rule_ends_when_it_is_silent_for_too_long() -> None:
    made = group(required=1)
    attach(made, 1000)
    for step in range(1, 200):
        settle(made, 100.0 + step / 10)
    assert BROKER in made.set.members
    end = 100.0 + FOREIGN_SILENCE_S
    for step in range(1, 33):
        settle(made, end + step / 10)
    assert BROKER not in made.set.members


def test_one_that_lies_is_cut_off_and_confirms_nothing() -> None:
    made = group()
    session = attach(made, 1000)
    settle(made, 100.0)
    acknowledge(made, session, 1001, 100.1)
    assert not session.streaming
    assert made.tracker.value == 1000


def test_a_second_connection_takes_the_place_of_the_first() -> None:
    made = group()
    first = attach(made, 1000)
    settle(made, 100.0)
    second = attach(made, 900, 101.0)
    assert (first.streaming, second.streaming) == (False, True)
    made.closed(first, "gone")
    assert made.sessions[BROKER.node_id] is second
    grow(made, 1100, 101.0)
    assert made.tracker.value == 1000, "the set waits until it is back where it was"


def test_one_that_was_in_the_set_and_is_ahead_stops_puts() -> None:
    made = group(members=frozenset({ME, BROKER}))
    made.alarm_foreign(hello(1100), "its log ends at 1100, this one at 1000")
    assert made.admission(100.0) == "its log ends at 1100, this one at 1000"
    (row,) = slave_rows(made, 100.0)
    assert row.alarm
    attach(made, 0)
    assert not made.alarms, "it has started empty, so an operator has decided"


def test_one_that_never_counted_stops_nothing_when_it_is_ahead() -> None:
    made = group()
    made.set.record = replace(made.set.record, known=frozenset({"m", "n2"}))
    made.alarm_foreign(hello(1100), "ahead")
    assert not made.alarms


def test_a_master_that_knows_no_other_node_believes_one_that_is_configured_to_count() -> None:
    """Its disk may be new, and the broker the only one that has what was acknowledged."""
    made = group()
    made.alarm_foreign(hello(1100), "its log ends at 1100, this one at 1000")
    assert made.admission(100.0) == "its log ends at 1100, this one at 1000"
