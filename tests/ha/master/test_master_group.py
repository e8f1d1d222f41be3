"""All slaves together: who counts, what is confirmed, when a put may be taken."""

from dataclasses import replace

from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.node_status import CATCHING_UP, IN_SYNC, slave_rows
from tandemlog_server.ha.master.session import MasterAction, MasterSession, SendAnswer, SendRefusal
from tandemlog_server.ha.protocol.frames import PREPARING, Ack, Hello
from tandemlog_server.ha.state import InSyncRecord, Member

ME = Member("m", "mi")


def group(
    *, end: int = 1000, required: int = 2, replication: Replication = Replication.SYNC
) -> MasterGroup:
    config = HaConfig("c", "m", mode=replication, min_in_sync=required)
    view = master_view(EpochEntry(1, 0), EpochEntry(3, end), end=end)
    return MasterGroup(config, ME, view, InSyncRecord(3, 1, frozenset({ME})), end, 100.0)


def hello(node_id: str, *, end: int = 1000, incarnation: str = "1", endpoint: str = "") -> Hello:
    return Hello(
        "c",
        node_id,
        incarnation,
        endpoint=endpoint or node_id,
        epochs=(EpochEntry(1, 0),),
        max_offset=end,
        file_size=4096,
    )


def join(made: MasterGroup, asked: Hello, now: float = 100.0) -> MasterSession:
    session = made.open(now)
    (answer,) = made.receive(session, asked, now)
    assert isinstance(answer, SendAnswer), answer
    return session


def refused(actions: list[MasterAction]) -> str:
    (action,) = actions
    assert isinstance(action, SendRefusal)
    return action.refusal.reason


def grown(made: MasterGroup, end: int) -> int:
    return made.positions(own=end, end=end, minimum=0, now=0.0)


def settle(made: MasterGroup, now: float) -> None:
    record = made.tick(now)
    assert record is not None
    made.persisted(record)


def test_a_put_is_confirmed_when_the_set_holds_it() -> None:
    made = group()
    session = join(made, hello("a"))
    assert grown(made, 1000) == 0
    made.receive(session, Ack(3, "1", 1000), 100.0)
    assert made.tracker.value == 0, "not in the set yet"
    settle(made, 100.0)
    assert made.tracker.value == 1000
    grown(made, 1200)
    session.pump(100.1)
    assert made.tracker.value == 1000
    made.receive(session, Ack(3, "1", 1200), 100.2)
    assert made.tracker.value == 1200
    assert session.view.confirm == 1200


def test_a_slave_below_the_start_of_the_epoch_does_not_join() -> None:
    made = group()
    session = join(made, hello("a", end=999))
    made.receive(session, Ack(3, "1", 999), 100.0)
    assert made.tick(100.0) is None
    session.pump(100.0)
    made.receive(session, Ack(3, "1", 1000), 100.0)
    assert made.tick(100.0) is not None


def test_while_a_member_joins_it_is_waited_for() -> None:
    made = group()
    first = join(made, hello("a"))
    made.receive(first, Ack(3, "1", 1000), 100.0)
    settle(made, 100.0)
    second = join(made, hello("b"))
    made.receive(second, Ack(3, "1", 1000), 100.0)
    made.tick(100.0)
    for now in (100.5, 101.0):
        made.receive(first, Ack(3, "1", 1000), now)
        made.receive(second, Ack(3, "1", 1000), now)
    record = made.tick(101.0)
    assert record is not None
    grown(made, 1100)
    first.pump(101.0)
    made.receive(first, Ack(3, "1", 1100), 101.0)
    assert made.tracker.value == 1000
    second.pump(101.0)
    made.receive(second, Ack(3, "1", 1100), 101.0)
    assert made.tracker.value == 1100


def test_async_replication_confirms_what_the_master_holds() -> None:
    made = group(replication=Replication.ASYNC, required=1)
    assert grown(made, 1500) == 1500
    assert made.admission(100.0) is None


def test_a_put_is_taken_only_with_enough_live_members() -> None:
    made = group()
    assert made.admission(100.0) == "1 in-sync replicas (m), but min_in_sync is 2"
    session = join(made, hello("a"))
    made.receive(session, Ack(3, "1", 1000), 100.0)
    settle(made, 100.0)
    assert made.admission(100.0) is None
    assert made.admission(103.1) is not None, "nothing heard"
    made.receive(session, Ack(3, "1", 1000, state="EIO"), 103.2)
    assert made.admission(103.2) is not None, "its disk has failed"
    made.receive(session, Ack(3, "1", 1000), 103.3)
    assert made.admission(103.3) is None
    made.closed(session, "gone")
    assert made.admission(103.3) is not None


def test_an_ack_that_does_not_count_ends_the_stream() -> None:
    for ack in (Ack(2, "1", 10), Ack(3, "2", 10), Ack(3, "1", 1001)):
        made = group()
        session = join(made, hello("a"))
        assert "is not valid" in refused(made.receive(session, ack, 100.0))
        assert not session.streaming


def test_a_slave_that_prepares_is_alive_and_holds_nothing() -> None:
    made = group()
    session = join(made, hello("a"))
    assert made.receive(session, Ack(3, "1", 1000, state=PREPARING), 102.0) == []
    assert session.heard_at == 102.0
    assert made.tracker.durable(Member("a", "1")) is None
    assert made.tick(102.0) is None


def test_a_member_that_prepares_can_confirm_nothing_so_no_put_is_taken_for_it() -> None:
    made = group()
    made.set.record = InSyncRecord(3, 1, frozenset({ME, Member("a", "1")}))
    session = join(made, hello("a"))
    for now in (101.0, 104.0, 107.0):
        made.receive(session, Ack(3, "1", 0, state=PREPARING), now)
        assert made.admission(now) is not None
    made.receive(session, Ack(3, "1", 1000), 107.1)
    assert made.admission(107.1) is None


def test_nothing_is_confirmed_and_no_slave_called_in_sync_before_the_set_is_settled() -> None:
    """This master may have slept through a term in which the member left the set."""
    made = group()
    record = InSyncRecord(3, 1, frozenset({ME, Member("a", "1")}), settled=False)
    made.set.record = record
    made.tracker.own = 1000
    session = join(made, hello("a", end=500))
    session.sent = 1000
    made.receive(session, Ack(3, "1", 600), 100.0)
    assert (made.tick(100.0), made.view.confirm) == (None, 0)
    (row,) = slave_rows(made, 100.0)
    assert (row.in_sync, row.state) == (False, CATCHING_UP)
    made.receive(session, Ack(3, "1", 1000), 100.1)
    (row,) = slave_rows(made, 100.1)
    assert (row.in_sync, row.state) == (True, IN_SYNC)
    assert made.view.confirm == 0, "the record may be read before it is settled"
    assert not made.tables_held("topics", 1)
    settled = made.tick(100.1)
    assert settled == replace(record, version=2, settled=True, known=frozenset({"m", "a"}))
    assert made.view.confirm == 0
    assert made.persisted(settled) == 1000


def test_a_master_without_enough_others_or_with_an_alarm_may_confirm_nothing() -> None:
    made = group()
    assert not made.may_confirm(), "it is alone, and two are required"
    assert group(required=1).may_confirm()
    assert group(replication=Replication.ASYNC).may_confirm()
    made.set.record = InSyncRecord(3, 1, frozenset({ME, Member("a", "1")}))
    assert made.may_confirm()
    made.alarms["a"] = "it holds more"
    assert not made.may_confirm()
    made.alarms.clear()
    made.set.record = replace(made.set.record, settled=False)
    assert not made.may_confirm()


def test_two_nodes_with_one_id_are_not_both_taken() -> None:
    for other in (
        hello("a", incarnation="2"),
        hello("a", endpoint="elsewhere"),
    ):
        made = group()
        first = join(made, hello("a"))
        late = made.open(100.0)
        assert "node id 'a' is in use by the slave at a" in refused(
            made.receive(late, other, 101.0)
        )
        assert first.streaming
        made.closed(late, "refused")
        assert made.sessions["a"] is first
        again = made.open(104.0)
        (answer,) = made.receive(again, other, 104.0)
        assert isinstance(answer, SendAnswer), "the first is dead by now"


def test_a_slave_that_reconnects_replaces_its_stream() -> None:
    made = group()
    first = join(made, hello("a"))
    second = join(made, hello("a"), 100.1)
    assert not first.streaming
    assert made.receive(first, Ack(3, "1", 1000), 100.2) == []
    assert made.tracker.durable(Member("a", "1")) is None
    made.closed(first, "replaced")
    assert made.sessions["a"] is second
    assert made.progress["a"].connected


def test_a_slave_with_confirmed_bytes_that_the_master_lost_stops_sync_puts() -> None:
    made = group()
    ahead = replace(hello("a", end=1400), confirm_offset=1300)
    late = made.open(100.0)
    reason = refused(made.receive(late, ahead, 100.0))
    assert made.admission(100.0) == reason
    other = join(made, hello("b"), 100.0)
    made.receive(other, Ack(3, "1", 1000), 100.0)
    assert made.tick(100.0) is None, "the set does not grow by who lacks those bytes too"
    join(made, hello("a"), 104.0)
    assert made.alarms == {}
    made.receive(other, Ack(3, "1", 1000), 104.0)
    settle(made, 104.0)
    assert Member("b", "1") in made.set.members


def test_an_alarm_of_a_slave_that_is_gone_for_good_ends_with_a_new_node_under_its_id() -> None:
    made = group()
    ahead = replace(hello("a", end=1400), confirm_offset=1300)
    late = made.open(100.0)
    reason = refused(made.receive(late, ahead, 100.0))
    assert "start a new node under its id" in reason
    made.closed(late, "gone")
    other = join(made, hello("b"), 100.0)
    made.receive(other, Ack(3, "1", 1000), 86_500.0)
    assert made.tick(86_500.0) is None
    assert made.admission(86_500.0) == reason, "time alone settles nothing"
    join(made, replace(hello("a", end=0, incarnation="2"), epochs=()), 86_500.0)
    assert made.alarms == {}
    made.receive(other, Ack(3, "1", 1000), 86_500.1)
    settle(made, 86_500.1)
    assert made.admission(86_500.1) is None


def test_a_later_epoch_that_a_slave_has_seen_is_to_be_remembered() -> None:
    made = group()
    made.set.record = replace(made.set.record, known=frozenset({"a"}))
    late = made.open(100.0)
    refused(made.receive(late, replace(hello("a"), accepted_epoch=9), 100.0))
    assert made.seen_epoch == 9


def test_a_member_of_the_term_before_must_follow_or_leave_first() -> None:
    made = group()
    made.set.record = InSyncRecord(3, 1, frozenset({ME, Member("b", "1")}))
    session = join(made, hello("a"))
    made.receive(session, Ack(3, "1", 1000), 100.0)
    grown(made, 1000)
    assert made.tracker.value == 0, "b may be the only one to know"
