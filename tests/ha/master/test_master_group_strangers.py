"""Whose word counts: what a hello may change on a master, and what an answer may on a slave."""

from dataclasses import replace
from typing import Any

import pytest

from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog.v1 import replication_pb2
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.errors import HandshakeRefusedError, ProtocolError, StateFileError
from tandemlog_server.ha.frame_limits import MAX_EPOCH
from tandemlog_server.ha.master.master_group import MAX_OTHERS, STRANGER, MasterGroup
from tandemlog_server.ha.master.session import MasterAction, SendAnswer, SendRefusal
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.protocol.chunk_codec import decode_chunk
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Answer,
    Hello,
    HelloAction,
    decode_slave_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.handshake import (
    MAX_EPOCH_JUMP,
    SlaveView,
    check_answer,
)
from tandemlog_server.ha.state import (
    HaState,
    InSyncRecord,
    Member,
    decode_state,
    encode_state,
    remembered,
)

ME, B = Member("m", "mi"), Member("b", "1")


def group(*members: Member, known: tuple[str, ...] = ("m", "b")) -> MasterGroup:
    config = HaConfig("c", "m", mode=Replication.SYNC, min_in_sync=1)
    view = master_view(EpochEntry(1, 0), EpochEntry(3, 1000))
    record = InSyncRecord(3, 1, frozenset({ME, *members}), known=frozenset(known))
    return MasterGroup(config, ME, view, record, 1000, 100.0)


def hello(name: str, **changes: object) -> Hello:
    base = Hello(
        "c", name, "1", f"{name}:1", epochs=(EpochEntry(1, 0),), max_offset=900,
        file_size=4096,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def greet(made: MasterGroup, asked: Hello, now: float = 100.0) -> MasterAction:
    (action,) = made.receive(made.open(now), asked, now)
    return action


def refused(made: MasterGroup, asked: Hello) -> str:
    action = greet(made, asked)
    assert isinstance(action, SendRefusal)
    return action.refusal.reason


AHEAD = {"max_offset": 2000, "confirm_offset": 1900}


def test_a_stranger_that_claims_to_hold_more_is_refused_and_stops_nobody() -> None:
    made = group(B)
    reason = refused(made, hello("x", **AHEAD))
    assert reason.endswith(STRANGER)
    assert made.alarms == {}
    assert made.admission(100.0) is None


@pytest.mark.parametrize("known", [("m", "b"), ("m", "b", "x")])
def test_a_node_that_was_in_the_set_is_believed_whatever_it_is_now(known: tuple[str, ...]) -> None:
    made = group(known=known)
    node = known[-1]
    assert made.admission(100.0) is None
    reason = refused(made, hello(node, **AHEAD))
    assert made.admission(100.0) == reason


def test_a_master_that_knows_nobody_hears_everybody_and_takes_no_epoch() -> None:
    made = group(known=("m",))
    refused(made, hello("x", accepted_epoch=9))
    assert made.admission(100.0)
    assert made.seen_epoch == 3


def test_epochs_are_taken_from_who_was_in_the_set() -> None:
    made = group(B)
    refused(made, hello("x", accepted_epoch=9))
    assert made.seen_epoch == 3
    refused(made, hello("b", accepted_epoch=9))
    assert made.seen_epoch == 9


def test_an_epoch_that_no_cluster_reaches_is_taken_from_nobody() -> None:
    made = group(B)
    assert "a cluster never moves" in refused(made, hello("b", accepted_epoch=4 + MAX_EPOCH_JUMP))
    assert made.seen_epoch == 3
    assert made.alarms == {}
    message = replication_pb2.SlaveFrame()
    message.hello.accepted_epoch = 2**31 - 1
    with pytest.raises(ProtocolError, match=r"accepted_epoch must be 0 .. 1073741824"):
        decode_slave_frame(message.SerializeToString())


def test_a_state_that_holds_such_an_epoch_says_the_way_out() -> None:
    state = HaState("c", "m", "i", accepted_epoch=2**31 - 1)
    with pytest.raises(StateFileError, match="highest epoch of its epochFileCheckpoint"):
        decode_state(encode_state(state))
    with pytest.raises(StateFileError, match="the next epoch is 1073741825"):
        next_epoch(EpochTable(), replace(state, accepted_epoch=MAX_EPOCH))


def test_who_has_left_the_set_stays_known_up_to_a_bound() -> None:
    state = HaState("c", "m", "i", record=InSyncRecord(1, 1, frozenset({B}), known=frozenset("b")))
    assert decode_state(encode_state(state)) == state
    many = remembered(["new"], (str(number) for number in range(1000)))
    assert "new" in many
    assert len(many) == 128


def test_slaves_that_never_were_in_the_set_are_bounded_and_forgotten() -> None:
    made = group(B)
    for number in range(MAX_OTHERS):
        session = made.open(100.0)
        made.receive(session, hello(f"x{number}"), 100.0)
        assert session.streaming
        if number:
            made.closed(session, "gone")
    assert isinstance(greet(made, hello("late")), SendAnswer)
    assert len(made.hellos) == MAX_OTHERS
    assert isinstance(greet(made, hello("b")), SendAnswer), "who is known has its place"
    made.tick(100.0 + 601)
    assert set(made.hellos) == {"x0", "late", "b"}
    assert set(made.progress) == set(made.tracker.matches) == set(made.hellos)


def test_no_stranger_takes_the_place_of_one_that_is_here() -> None:
    made = group(B)
    for number in range(MAX_OTHERS):
        assert isinstance(greet(made, hello(f"x{number}")), SendAnswer)
    assert "64 slaves that are not in sync" in refused(made, hello("late"))
    assert isinstance(greet(made, hello("x5")), SendAnswer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"received": 2000}, "received 2000"),
        ({"reput": 2000}, "dispatched 2000"),
        ({"durable": 2000}, "an acknowledgement of 2000"),
    ],
)
def test_an_acknowledgement_of_what_was_not_sent_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    made = group(B)
    session = made.open(100.0)
    made.receive(session, hello("b"), 100.0)
    (answer,) = made.receive(session, replace(Ack(3, "1", 900), **changes), 100.0)
    assert isinstance(answer, SendRefusal)
    assert words in answer.refusal.reason
    assert made.tracker.durable(B) is None


@pytest.mark.parametrize("field", ["durable_offset", "received_offset", "reput_offset", "epoch"])
def test_an_acknowledgement_below_zero_is_refused_by_name(field: str) -> None:
    message = replication_pb2.SlaveFrame()
    setattr(message.ack, field, -1)
    with pytest.raises(ProtocolError, match=f"acknowledgement: {field} must be 0 .. "):
        decode_slave_frame(message.SerializeToString())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "h:1" * 200}, "endpoint of 600 characters"),
        ({"endpoint": "no port"}, "endpoint must be host:port"),
        ({"http_endpoint": "h:99999"}, "http_endpoint must be host:port"),
        ({"node_id": "n" * 256}, "node_id of 256 characters"),
        ({"incarnation": "a\nb"}, "cannot be printed"),
        ({"min_offset": 10, "max_offset": 5}, "a log 10..5"),
        ({"confirm_offset": 901}, "confirmed up to 901"),
        ({"epochs": (EpochEntry(2, 0), EpochEntry(1, 5))}, "cannot follow"),
        ({"epochs": tuple(EpochEntry(n, n) for n in range(1 << 17))}, "131072 epochs"),
    ],
)
def test_a_hello_above_a_limit_is_refused_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode_slave_frame(encode_slave_frame(hello("b", **changes)))


def test_a_number_without_an_end_is_not_read_to_its_end() -> None:
    endless = b"\x12" + b"\xff" * 300_000
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        decode_chunk(endless)
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        decode_chunk(b"\x12\x10\x08" + b"\xff" * 15)


SLAVE = SlaveView(0, 4000, 3000, 4096, 4, (EpochEntry(1, 0), EpochEntry(4, 2000)))
ANSWER = Answer(
    HelloAction.CONTINUE, 4000, epoch=4, epochs=SLAVE.epochs, file_size=4096, max_offset=6000
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"file_size": 0}, "log files have 0 bytes"),
        ({"file_size": 1 << 50}, "log files have"),
        ({"confirm": 7000}, "confirmed up to 7000"),
        ({"min_offset": 5000}, "outside the master's log"),
        ({"epoch": 3}, "log ends in epoch 4"),
        (
            {"action": HelloAction.RESYNC, "offset": 5000, "min_offset": 4096},
            "the master's log begins at 4096",
        ),
    ],
)
def test_an_answer_that_no_master_gives_is_not_followed(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        check_answer(replace(ANSWER, **changes), SLAVE)  # type: ignore[arg-type]


def test_a_log_is_not_set_aside_for_a_master_that_it_equals() -> None:
    lie = replace(ANSWER, action=HelloAction.RESYNC, offset=0)
    with pytest.raises(HandshakeRefusedError, match=r"it equals the master's up to 4000"):
        check_answer(lie, replace(SLAVE, confirm=0))
    behind = replace(ANSWER, action=HelloAction.RESYNC, offset=4096, min_offset=4096)
    check_answer(behind, SLAVE)


def test_a_slave_does_not_follow_into_an_epoch_that_its_cluster_cannot_have_reached() -> None:
    far = 5 + MAX_EPOCH_JUMP
    with pytest.raises(HandshakeRefusedError, match="a cluster never moves"):
        check_answer(replace(ANSWER, epoch=far), SLAVE)
    check_answer(
        replace(ANSWER, epoch=far, offset=0), replace(SLAVE, max_offset=0, accepted_epoch=0)
    )
