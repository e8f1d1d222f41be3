"""The slave's side of a stream."""

from dataclasses import replace
from typing import Any

import pytest

from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import (
    PREPARING,
    Ack,
    Answer,
    Checksum,
    Hello,
    HelloAction,
    MemberList,
    Metadata,
    Refusal,
)
from tandemlog_server.ha.protocol.handshake import SlaveView
from tandemlog_server.ha.protocol.table_pieces import Piece
from tandemlog_server.ha.slave.session import (
    AcceptEpoch,
    AdoptEpochs,
    Append,
    BeginAt,
    CheckProof,
    Confirm,
    Disconnect,
    Prepared,
    ReplaceTable,
    SeeMembers,
    Send,
    SetAside,
    SlaveAction,
    SlaveSession,
    SlaveState,
    Truncate,
)
from tandemlog_server.ha.state import Member

CONFIG = HaConfig("c", "s", role=Role.SLAVE, master_endpoint="m:1")
HELLO = Hello("c", "s", "si", epochs=(EpochEntry(1, 0), EpochEntry(2, 300)), max_offset=500)
ME = SlaveView(min_offset=0, max_offset=500, confirm=200, file_size=1000, accepted_epoch=2)
FOREIGN = (EpochEntry(3, 0),)
ANSWER = Answer(
    HelloAction.CONTINUE,
    500,
    master_id="m",
    master_incarnation="mi",
    epoch=3,
    epochs=(EpochEntry(1, 0), EpochEntry(2, 300), EpochEntry(3, 700)),
    file_size=1000,
    max_offset=900,
    proof_start=436,
    proof_crc=7,
)
ACCEPT = AcceptEpoch(3, Member("m", "mi"), frozenset({"m"}))


def chunk(offset: int = 500, data: bytes = b"x" * 50, **changes: Any) -> Chunk:
    base = Chunk(
        offset, epoch=2, epoch_start=300, confirm=0, max_offset=900, sent_at_ms=0, master_epoch=3,
        data=data,
    )  # fmt: skip
    return replace(base, **changes)


def following(answer: Answer = ANSWER) -> SlaveSession:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    session.receive(answer, 0.0)
    session.prepared(500, 0, 0.0)
    return session


def ack(actions: list[SlaveAction]) -> Ack:
    (action,) = actions
    assert isinstance(action, Send)
    assert isinstance(action.frame, Ack)
    return action.frame


def appended(actions: list[SlaveAction]) -> Append:
    found = [each for each in actions if isinstance(each, Append)]
    assert len(found) == 1
    return found[0]


def test_it_greets_first() -> None:
    assert SlaveSession(HELLO, ME, CONFIG, 0.0).start(0.0) == [Send(HELLO)]


def test_it_proves_then_remembers_then_goes_on() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    assert session.receive(ANSWER, 0.0) == [CheckProof(436, 500, 7), ACCEPT, Prepared()]
    assert session.state is SlaveState.PREPARING


def test_it_cuts_after_the_epoch_is_remembered() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    cut = replace(ANSWER, action=HelloAction.TRUNCATE, offset=250, proof_start=250)
    assert session.receive(cut, 0.0) == [ACCEPT, Truncate(250), Prepared()]
    first = appended(session.receive(chunk(250, epoch=1, epoch_start=0), 0.0))
    assert first.entry is None
    second = appended(session.receive(chunk(300), 0.0))
    assert second.entry == EpochEntry(2, 300)


def test_an_empty_slave_takes_the_masters_file_size() -> None:
    empty = replace(HELLO, epochs=(), max_offset=0)
    session = SlaveSession(empty, replace(ME, max_offset=0, confirm=0), CONFIG, 0.0)
    begin = replace(ANSWER, offset=300, proof_start=300)
    assert session.receive(begin, 0.0) == [ACCEPT, BeginAt(300, 1000), Prepared()]
    assert appended(session.receive(chunk(300), 0.0)).entry == EpochEntry(2, 300)


def test_checksums_that_proved_the_log_bring_the_masters_epochs() -> None:
    asked = replace(HELLO, epochs=(), checksums=(Checksum(0, 500, 1),))
    session = SlaveSession(asked, ME, CONFIG, 0.0)
    actions = session.receive(ANSWER, 0.0)
    assert AdoptEpochs(ANSWER.epochs, 500) in actions
    assert appended(session.receive(chunk(), 0.0)).entry is None


def test_a_resync_sets_aside_and_ends_the_stream() -> None:
    session = SlaveSession(HELLO, replace(ME, confirm=0), CONFIG, 0.0)
    aside, end = session.receive(
        replace(ANSWER, action=HelloAction.RESYNC, offset=0, epochs=FOREIGN, reason="why"), 0.0
    )
    assert aside == SetAside(0, "why")
    assert isinstance(end, Disconnect)
    assert not end.refused
    assert session.state is SlaveState.CLOSED


def test_nothing_is_acknowledged_before_the_log_equals_the_masters() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    assert session.tick(0.5) == []
    session.receive(ANSWER, 0.5)
    session.receive(chunk(), 0.5)
    assert session.stored(550, 0, 0.6) == []
    assert ack(session.tick(1.0)) == Ack(3, "si", 0, 550, 0, PREPARING)
    assert ack(session.prepared(500, 0, 1.0)) == Ack(3, "si", 500, 550, 0)
    assert ack(session.stored(550, 40, 1.1)) == Ack(3, "si", 550, 550, 40)


def test_an_answer_that_would_cut_confirmed_bytes_is_refused() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    (end,) = session.receive(replace(ANSWER, action=HelloAction.TRUNCATE, offset=100), 0.0)
    assert isinstance(end, Disconnect)
    assert (end.refused, end.retry) == (True, False)
    assert session.receive(chunk(), 0.0) == []


def test_bytes_and_the_confirm_offset_are_passed_on() -> None:
    session = following()
    data = b"y" * 50
    assert session.receive(chunk(data=data, confirm=520), 0.0) == [
        Append(500, data, None, 0),
        Confirm(520, 900),
    ]
    assert session.receive(chunk(550, b"", confirm=520), 0.0) == []
    assert session.receive(chunk(550, b"", confirm=540), 0.0) == [Confirm(540, 900)]
    assert session.receive(chunk(550, b"", confirm=540, max_offset=950), 0.0) == [Confirm(540, 950)]


def test_a_new_epoch_comes_with_its_first_bytes() -> None:
    session = following()
    session.receive(chunk(500, b"x" * 200), 0.0)
    assert appended(session.receive(chunk(700, epoch=3, epoch_start=700), 0.0)).entry == (
        EpochEntry(3, 700)
    )
    assert appended(session.receive(chunk(750, epoch=3, epoch_start=700), 0.0)).entry is None


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (chunk(499), "a chunk at 499 came, but this log ends at 500"),
        (chunk(master_epoch=2), "epoch 2 came on a stream of another epoch"),
        (chunk(epoch=1, epoch_start=0), "epochs must not decrease"),
        (chunk(epoch=3, epoch_start=300), "epochs must not decrease"),
        (chunk(epoch=4, epoch_start=500), "invalid epoch"),
        (chunk(epoch=3, epoch_start=501), "invalid epoch"),
        (ANSWER, "second answer"),
    ],
)
def test_a_frame_that_does_not_fit_ends_the_stream(frame: Chunk | Answer, words: str) -> None:
    (end,) = following().receive(frame, 0.0)
    assert isinstance(end, Disconnect)
    assert words in end.reason
    assert not end.refused


def test_a_chunk_before_the_answer_ends_the_stream() -> None:
    (end,) = SlaveSession(HELLO, ME, CONFIG, 0.0).receive(chunk(), 0.0)
    assert isinstance(end, Disconnect)
    assert "does not answer" in end.reason


def test_a_refusal_ends_the_stream() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    assert session.receive(Refusal("no", retry=False), 0.0) == [
        Disconnect("no", refused=True, retry=False)
    ]


def test_a_slave_whose_disk_fails_stops_acknowledging_and_says_so() -> None:
    session = following()
    session.receive(chunk(), 0.0)
    assert ack(session.failed("fdatasync: EIO", 0.1)) == Ack(3, "si", 500, 550, 0, "fdatasync: EIO")
    assert session.stored(550, 0, 0.2) == []
    assert session.receive(chunk(550, confirm=530), 0.2) == []
    assert session.receive(Piece("topics", 1, 0, True, b"{}"), 0.2) == []
    beat = ack(session.tick(0.5))
    assert (beat.durable, beat.state) == (500, "fdatasync: EIO")


def test_a_disk_that_fails_while_it_prepares_says_so_too() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    session.receive(ANSWER, 0.0)
    assert ack(session.failed("EIO", 0.1)) == Ack(3, "si", 0, 500, 0, "EIO")


def test_heartbeats_and_the_end_of_a_silent_stream() -> None:
    session = following()
    assert session.tick(0.2) == []
    assert ack(session.tick(0.3)).durable == 500
    session.receive(chunk(data=b""), 2.0)
    session.tick(4.9)
    (end,) = session.tick(5.1)
    assert isinstance(end, Disconnect)
    assert "no frame received from the master for 3.1 s" in end.reason
    assert session.tick(9.0) == []


def test_members_before_the_answer_are_a_sign_of_life() -> None:
    session = SlaveSession(HELLO, ME, CONFIG, 0.0)
    assert session.receive(MemberList(()), 2.5) == [SeeMembers(())]
    assert session.tick(5.0) == []


def test_tables_and_members_are_passed_on() -> None:
    session = following()
    assert session.receive(Piece("topics", 1, 0, False, b"{"), 0.0) == []
    table = Metadata("topics", b"{}", 1)
    assert session.receive(Piece("topics", 1, 1, True, b"}"), 0.0) == [ReplaceTable(table)]
    assert ack(session.table_replaced("topics", 1, 0.0)).tables == (("topics", 1),)
    assert session.receive(MemberList(()), 0.0) == [SeeMembers(())]
