"""A master knows that it still leads once every member of the sets in force has said so."""

import asyncio
from dataclasses import replace

import pytest

from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.session import SendChunk
from tandemlog_server.ha.master.waiters import Waiters
from tandemlog_server.ha.protocol.chunk_codec import Chunk, decode_chunk, encode_chunk
from tandemlog_server.ha.protocol.frames import (
    PREPARING,
    Ack,
    Answer,
    Hello,
    HelloAction,
    decode_slave_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.handshake import SlaveView
from tandemlog_server.ha.protocol.versions import OURS, SILENT_PEER, Build
from tandemlog_server.ha.slave.session import Send, SlaveSession
from tandemlog_server.ha.state import InSyncRecord, Member

ME, A, B = Member("m", "mi"), Member("a", "1"), Member("b", "1")
NOW = 1000.0
OLD = Build("0.1.9", OURS.features - {"rounds"}, OURS.needs)


class Rig:
    """A master of epoch 3 and the slaves that greet it."""

    def __init__(self, *members: Member) -> None:
        view = master_view(EpochEntry(3, 0), end=100, elected=True)
        config = HaConfig("c", "m", mode=Replication.SYNC_DEGRADE)
        record = InSyncRecord(3, 1, frozenset({ME, *members}))
        self.group = MasterGroup(config, ME, view, record, 100, NOW)

    def follow(self, *node_ids: str, build: Build = OURS, incarnation: str = "1") -> None:
        for node_id in node_ids:
            session = self.group.open(NOW)
            hello = Hello(
                "c", node_id, incarnation, epochs=(EpochEntry(3, 0),), max_offset=100,
                file_size=4096, master_id="m", master_incarnation="mi", build=build,
            )  # fmt: skip
            self.group.receive(session, hello, NOW)
            self.ack(node_id, 0, incarnation=incarnation)

    def ack(
        self, node_id: str, number: int, now: float = NOW, incarnation: str = "1", state: str = ""
    ) -> None:
        session = self.group.sessions[node_id]
        ack = Ack(3, incarnation, 100, 100, round=number, state=state)
        self.group.receive(session, ack, now)


def test_every_member_of_the_set_has_to_answer_the_same_round() -> None:
    rig = Rig(A, B)
    rig.follow("a", "b")
    number = rig.group.ask_round(NOW)
    assert not rig.group.led_in_round(number)
    rig.ack("a", number)
    assert not rig.group.led_in_round(number), "b may have been elected"
    rig.ack("b", number - 1)
    assert not rig.group.led_in_round(number), "that was before the question"
    rig.ack("b", number)
    assert rig.group.led_in_round(number)
    assert not rig.group.led_in_round(rig.group.ask_round(NOW)), "the next request asks again"


def test_a_proposed_set_counts_beside_the_recorded_one() -> None:
    rig = Rig(A)
    rig.follow("a", "b")
    proposed = InSyncRecord(3, 2, frozenset({ME, A, B}))
    rig.group.set.proposed = proposed
    number = rig.group.ask_round(NOW)
    rig.ack("a", number)
    assert not rig.group.led_in_round(number), "the proposal may be recorded, and b elected"
    rig.ack("b", number)
    assert rig.group.led_in_round(number)


def test_who_is_not_in_the_set_says_nothing() -> None:
    rig = Rig(A)
    rig.follow("a", "b")
    number = rig.group.ask_round(NOW)
    rig.ack("b", number)
    assert not rig.group.led_in_round(number)


@pytest.mark.parametrize("lacks", ["alone", "away", "old", "another disk", "rocketmq"])
def test_a_round_that_can_have_no_answer_is_not_begun(lacks: str) -> None:
    rig = Rig() if lacks == "alone" else Rig(A)
    if lacks == "old":
        rig.follow("a", build=OLD)
    if lacks == "rocketmq":
        rig.follow("a", build=SILENT_PEER)
    if lacks == "another disk":
        rig.follow("a", incarnation="2")
    assert rig.group.ask_round(NOW) == 0


def test_a_slave_that_compares_its_log_does_not_follow_yet() -> None:
    rig = Rig(A)
    rig.follow("a")
    number = rig.group.ask_round(NOW)
    rig.ack("a", number, state=PREPARING)
    assert not rig.group.led_in_round(number)


def test_what_was_answered_before_a_pause_counts_for_nothing() -> None:
    rig = Rig(A)
    rig.follow("a")
    number = rig.group.ask_round(NOW)
    late = NOW + rig.group.config.dead_after_ms / 1000 + 0.1
    rig.ack("a", number, late)
    assert not rig.group.led_in_round(number), "others may have elected while this process stood"


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_acknowledged_before_a_pause_confirms_nothing(ended: bool) -> None:
    """Nor where the stream ended meanwhile."""
    rig = Rig(A)
    rig.follow("a")
    assert rig.group.tracker.durable(A) == 100
    if ended:
        rig.group.closed(rig.group.sessions["a"], "the stream ended")
    assert rig.group.notice_pause(NOW + rig.group.config.dead_after_ms / 1000 + 0.1)
    assert rig.group.tracker.durable(A) is None


def test_a_new_stream_begins_without_answers() -> None:
    rig = Rig(A)
    rig.follow("a")
    number = rig.group.ask_round(NOW)
    rig.ack("a", number)
    rig.follow("a")
    assert not rig.group.led_in_round(number)


def test_the_question_goes_out_at_once_and_once() -> None:
    rig = Rig(A)
    rig.follow("a")
    session = rig.group.sessions["a"]
    while session.pump(NOW):
        pass
    first, last = rig.group.ask_round(NOW), rig.group.ask_round(NOW)
    (action,) = session.pump(NOW)
    assert isinstance(action, SendChunk)
    assert (action.length, action.round) == (0, last), f"round {first} is answered by {last}"
    assert session.pump(NOW) == []


def test_an_old_slave_is_sent_no_question() -> None:
    rig = Rig(A)
    rig.follow("a", "b", build=OLD)
    rig.group.view.round = 7
    session = rig.group.sessions["b"]
    while actions := session.pump(NOW):
        assert all(isinstance(each, SendChunk) and not each.round for each in actions)


def test_the_slave_answers_before_it_stores() -> None:
    config = HaConfig("c", "a", master_endpoint="m:1")
    hello = Hello("c", "a", "1", epochs=(EpochEntry(3, 0),), max_offset=100, file_size=4096)
    me = SlaveView(0, 100, 50, 4096, accepted_epoch=3, epochs=(EpochEntry(3, 0),))
    session = SlaveSession(hello, me, config, NOW)
    answer = Answer(
        HelloAction.CONTINUE, 100, master_id="m", master_incarnation="mi", epoch=3,
        epochs=(EpochEntry(3, 0),), file_size=4096, max_offset=100, proof_start=100,
    )  # fmt: skip
    chunk = Chunk(100, 3, 0, 0, 150, 0, master_epoch=3, data=b"x" * 50, round=4)
    session.receive(answer, NOW)
    early = session.receive(chunk, NOW)
    assert not any(isinstance(each, Send) for each in early), "its log is not the master's yet"
    (ready,) = session.prepared(100, 0, NOW)
    assert isinstance(ready, Send)
    assert isinstance(ready.frame, Ack)
    assert ready.frame.round == 4
    again = session.receive(replace(chunk, offset=150, max_offset=200, round=5), NOW)
    (said,) = [each.frame for each in again if isinstance(each, Send)]
    assert isinstance(said, Ack)
    assert (said.round, said.durable, said.epoch) == (5, 100, 3)
    quiet = session.receive(Chunk(200, 3, 0, 0, 200, 0, master_epoch=3), NOW)
    assert not any(isinstance(each, Send) for each in quiet)


def test_a_round_travels_both_ways() -> None:
    chunk = Chunk(100, 3, 0, 0, 150, 9, master_epoch=3, data=b"x", crc=5, round=1 << 40)
    found = decode_chunk(encode_chunk(chunk))
    assert found is not None
    assert replace(found, data=bytes(found.data)) == chunk
    ack = Ack(3, "1", 100, 100, round=1 << 40)
    assert decode_slave_frame(encode_slave_frame(ack)) == ack


def test_heard_by_all_needs_each_member_and_not_only_enough_of_them() -> None:
    rig = Rig(A, B)
    rig.follow("a")
    assert rig.group.admission(NOW) is None
    assert not rig.group.heard_by_all(NOW)
    rig.follow("b")
    assert rig.group.heard_by_all(NOW)
    assert not rig.group.heard_by_all(NOW + 3.1)


async def test_one_answer_serves_all_that_waited_when_it_was_asked() -> None:
    answered = 0
    waiters = Waiters[int](lambda number: number <= answered)
    waiting = [asyncio.create_task(waiters.wait(number, 10.0)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    late = asyncio.create_task(waiters.wait(4, 0.0))
    answered = 2
    await asyncio.sleep(0)
    waiters.check()
    assert await asyncio.gather(*waiting[:2]) == [True, True]
    assert not await late, "its time is over"
    assert not waiting[2].done()
    answered = 3
    waiters.check()
    assert await waiting[2]
