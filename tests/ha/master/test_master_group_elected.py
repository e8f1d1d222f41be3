"""A master that was elected, and its slaves: pauses, overruled logs, terms that were won."""

from dataclasses import replace

import pytest

from fakes.fake_store import FakeDisk, FakeStore
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.errors import HandshakeRefusedError, StateFileError
from tandemlog_server.ha.master.master_group import MasterGroup, Return
from tandemlog_server.ha.master.session import MasterSession, SendAnswer, SendRefusal
from tandemlog_server.ha.master.term import Term, WonTerm, begin_term
from tandemlog_server.ha.protocol.frames import Ack, Answer, Hello, HelloAction, Refusal
from tandemlog_server.ha.protocol.handshake import MasterView, SlaveView, check_answer, decide
from tandemlog_server.ha.state import HaState, Member
from tandemlog_server.storage.config import FlushMode

ME, B, C = Member("a", "1"), Member("b", "1"), Member("c", "1")
CONFIG = HaConfig("c", "a", mode=Replication.SYNC, min_in_sync=2, endpoint="a:1")
STATE = HaState("c", "a", "1", accepted_epoch=3)
WON = WonTerm(5, 9, frozenset({ME, B}), frozenset("abc"), unclean_epoch=4)


def filled(flush: FlushMode = FlushMode.ASYNC) -> FakeStore:
    store = FakeStore(FakeDisk(), flush=flush)
    store.become_master(3)
    store.append(b"x" * 96)
    store.flush()
    store.become_slave()
    return store


def begun(store: FakeStore | None = None, won: WonTerm = WON, state: HaState = STATE) -> Term:
    return begin_term(store or filled(), state, lambda _: None, CONFIG, won)


# ---- a term that was won


def test_epoch_and_set_come_from_the_election() -> None:
    store = filled()
    term = begun(store)
    assert (term.view.epoch, term.state.accepted_epoch) == (5, 5)
    assert (term.record.members, term.record.version) == (WON.in_sync, 9)
    assert not term.record.unheard
    assert (term.view.elected, term.view.unclean_epoch) == (True, 4)
    assert store.epochs.table.last == EpochEntry(5, 100)


@pytest.mark.parametrize(
    ("won", "state"),
    [
        (WON, replace(STATE, accepted_epoch=5)),
        (WON, replace(STATE, accepted_epoch=6)),
        (WON, replace(STATE, incarnation="2")),
        (replace(WON, epoch=3), replace(STATE, accepted_epoch=0)),
    ],
    ids=["again", "an older record", "another disk", "its own log is newer"],
)
def test_a_term_that_cannot_be_this_nodes(won: WonTerm, state: HaState) -> None:
    store = filled()
    with pytest.raises(StateFileError, match="older than this store"):
        begun(store, won, state)
    assert not store.master


# ---- a pause


def group(elected: bool = True) -> MasterGroup:
    term = begun()
    term.view.elected = elected
    return MasterGroup(CONFIG, term.me, term.view, term.record, 100, 50.0)


def join(made: MasterGroup, name: str, now: float) -> MasterSession:
    session = made.open(now)
    hello = Hello(
        "c", name, "1", endpoint=f"{name}:1", epochs=(EpochEntry(3, 0),), max_offset=100,
        file_size=4096, accepted_epoch=3,
    )  # fmt: skip
    (answer,) = made.receive(session, hello, now)
    assert isinstance(answer, SendAnswer), answer
    return session


def ack(made: MasterGroup, session: MasterSession, durable: int, now: float) -> None:
    frame = Ack(made.view.epoch, "1", durable=durable, received=durable, reput=0)
    made.receive(session, frame, now)


def test_after_a_pause_nothing_is_acknowledged_before_a_slave_has_greeted_again() -> None:
    """Lesson of Patroni 1684, 837: what fences is looked at with each acknowledgement."""
    made = group()
    session = join(made, "b", 50.0)
    ack(made, session, 100, 50.1)
    assert made.tracker.value == 100
    session.sent = 150
    made.tracker.sent("b", 150)
    assert made.positions(own=150, end=150, minimum=0, now=60.0) == 100
    assert not session.streaming
    ack(made, session, 150, 60.1)  # it was in a socket
    assert made.tracker.value == 100
    again = join(made, "b", 60.2)
    ack(made, again, 100, 60.3)
    assert made.tracker.value == 100


def test_any_thread_sees_the_pause_before_the_loop_does() -> None:
    made = group()
    assert not made.stood_still(53.0)
    assert made.stood_still(53.1)
    assert made.notice_pause(53.1)
    assert not made.stood_still(53.2)


def test_a_configured_master_is_not_replaced_while_it_stands_still() -> None:
    made = group(elected=False)
    session = join(made, "b", 50.0)
    made.positions(own=100, end=100, minimum=0, now=60.0)
    assert session.streaming


def test_a_slave_of_a_later_term_is_a_reason_to_look_at_the_record() -> None:
    made = group()
    session = made.open(50.0)
    hello = Hello("c", "b", "1", max_offset=0, accepted_epoch=6)
    (refused,) = made.receive(session, hello, 50.0)
    assert isinstance(refused, SendRefusal)
    assert refused.refusal.retry
    assert (made.seen_epoch, made.alarms) == (6, {})


# ---- overruled logs


def view(**changes: object) -> MasterView:
    values: dict[str, object] = {
        "cluster_id": "c",
        "node_id": "a",
        "incarnation": "1",
        "endpoint": "a:1",
        "epoch": 5,
        "epochs": EpochTable((EpochEntry(2, 0), EpochEntry(5, 100))),
        "min_offset": 0,
        "end_offset": 200,
        "confirm": 150,
        "file_size": 4096,
        "proof_bytes": 10,
        "elected": True,
        "unclean_epoch": 5,
        **changes,
    }
    return MasterView(**values)  # type: ignore[arg-type]


AHEAD = Hello(
    "c", "b", "1", epochs=(EpochEntry(2, 0), EpochEntry(3, 100)), max_offset=180,
    confirm_offset=160, file_size=4096, accepted_epoch=3,
)  # fmt: skip


def mine(unclean_epoch: int) -> SlaveView:
    return SlaveView(0, 180, 160, 4096, 3, AHEAD.epochs, unclean_epoch)


def test_a_slave_that_was_overruled_sets_its_log_aside() -> None:
    answer = decide(AHEAD, view()).frame
    assert isinstance(answer, Answer)
    assert answer.action is HelloAction.RESYNC
    assert "without 60 confirmed bytes" in answer.reason
    check_answer(answer, mine(5))
    with pytest.raises(HandshakeRefusedError, match="confirmed"):
        check_answer(answer, mine(0))


def test_what_is_given_up_is_told_also_where_nothing_is_in_common() -> None:
    hello = replace(AHEAD, epochs=(EpochEntry(1, 0),))
    answer = decide(hello, view()).frame
    assert isinstance(answer, Answer)
    assert answer.action is HelloAction.RESYNC
    assert "without 160 confirmed bytes" in answer.reason


def led(accepted: int, **changes: object) -> Hello:
    """`b` led epoch `accepted`, on the disk that it still has."""
    hello = replace(AHEAD, accepted_epoch=accepted, master_id="b", master_incarnation="1")
    return replace(hello, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hello", "cut_bytes"),
    [
        (led(3), 80),  # its log and the master's are equal up to 100
        (led(3, confirm_offset=90), 80),
        (led(3, epochs=(EpochEntry(2, 0),), max_offset=100, confirm_offset=90), 0),
        (led(3, epochs=(EpochEntry(9, 7),), accepted_epoch=3), None),
    ],
    ids=["confirmed bytes", "others", "none", "refused"],
)
def test_a_leader_that_comes_back_tells_what_the_next_term_lacks(
    hello: Hello, cut_bytes: int | None
) -> None:
    made = group()
    made.view.unclean_epoch, made.view.epochs = 4, view().epochs
    made.view.end_offset = 200
    made.receive(made.open(50.0), hello, 50.0)
    expected = [] if cut_bytes is None else [Return(4, "b", cut_bytes)]
    assert made.returns == expected


@pytest.mark.parametrize(
    "hello",
    [
        led(3, master_id="a"),
        led(3, incarnation="2"),
        led(3, node_id="x", master_id="x"),
        led(4),
    ],
    ids=["it followed", "another disk", "a stranger", "its term came later"],
)
def test_no_other_node_tells_it(hello: Hello) -> None:
    made = group()
    made.view.unclean_epoch, made.view.epochs = 4, view().epochs
    made.view.end_offset = 200
    made.receive(made.open(50.0), hello, 50.0)
    assert made.returns == []


@pytest.mark.parametrize(
    ("unclean_epoch", "accepted"), [(0, 3), (3, 3), (4, 4)], ids=["none", "its own", "followed"]
)
def test_no_other_slave_gives_up_what_is_confirmed(unclean_epoch: int, accepted: int) -> None:
    verdict = decide(replace(AHEAD, accepted_epoch=accepted), view(unclean_epoch=unclean_epoch))
    assert isinstance(verdict.frame, Refusal)
    assert "acknowledged messages would be lost" in verdict.alarm


def test_another_disk_of_the_master_was_elected_too() -> None:
    hello = replace(AHEAD, max_offset=100, confirm_offset=90, master_id="a", master_incarnation="0")
    assert isinstance(decide(hello, view()).frame, Answer)
    assert decide(hello, view(elected=False)).alarm
