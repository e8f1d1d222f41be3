"""One slave as the master sees it."""

from dataclasses import replace

import pytest

from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.master.session import (
    Close,
    MasterAction,
    MasterSession,
    SendAnswer,
    SendChunk,
    SendRefusal,
    SessionState,
)
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import Ack, Hello, HelloAction
from tandemlog_server.ha.protocol.handshake import MasterView

CONFIG = HaConfig("c", "m", chunk_bytes=100, window_bytes=300, heartbeat_ms=300)


def view(**changes: object) -> MasterView:
    values: dict[str, object] = {
        "cluster_id": "c",
        "node_id": "m",
        "incarnation": "mi",
        "endpoint": "m:1",
        "epoch": 2,
        "epochs": EpochTable((EpochEntry(1, 0), EpochEntry(2, 450))),
        "min_offset": 0,
        "end_offset": 1000,
        "confirm": 0,
        "file_size": 370,
        "proof_bytes": 64,
        **changes,
    }
    return MasterView(**values)  # type: ignore[arg-type]


HELLO = Hello("c", "s", "si", epochs=(EpochEntry(1, 0),), max_offset=200, file_size=370)


def joined(master: MasterView | None = None, hello: Hello = HELLO) -> MasterSession:
    session = MasterSession(master or view(), CONFIG, 0.0)
    actions = session.receive(hello, 0.0)
    assert isinstance(actions[0], SendAnswer)
    return session


def chunk(actions: list[MasterAction]) -> SendChunk:
    (action,) = actions
    assert isinstance(action, SendChunk)
    return action


def acked(session: MasterSession, offset: int, now: float = 0.0) -> None:
    assert session.receive(Ack(2, "si", offset), now) == []


def test_it_sends_from_the_slaves_end_within_the_window() -> None:
    session = joined()
    sent = [chunk(session.pump(0.0)) for _ in range(2)]
    assert [(each.offset, each.length) for each in sent] == [(200, 100), (300, 70)]
    assert [(each.epoch, each.epoch_start) for each in sent] == [(1, 0), (1, 0)]
    # 370 is the end of a file, 450 the start of an epoch
    assert chunk(session.pump(0.0)).length == 80
    assert session.pump(0.0) == [], "the window is full"
    acked(session, 370)
    last = chunk(session.pump(0.0))
    assert (last.offset, last.length, last.epoch, last.epoch_start) == (450, 100, 2, 450)


def test_chunks_follow_the_link() -> None:
    big = replace(CONFIG, chunk_bytes=4 << 20, window_bytes=1 << 30)
    session = MasterSession(
        view(end_offset=1 << 30, file_size=1 << 30, epochs=EpochTable(())), big, 0
    )
    session.receive(replace(HELLO, epochs=(), max_offset=0), 0.0)

    now = 0.0

    def lengths(count: int, took: float) -> list[int]:
        nonlocal now
        found = []
        for _ in range(count):
            now += took
            found.append(chunk(session.pump(now)).length >> 10)
        return found

    assert lengths(9, 0.01) == [32, 64, 128, 256, 512, 1024, 2048, 4096, 4096], "a quick link"
    assert lengths(3, 0.2) == [4096] * 3, "within a heartbeat it stays"
    assert lengths(9, 0.4) == [2048, 1024, 512, 256, 128, 64, 32, 32, 32]
    assert lengths(3, 0.01) == [64, 128, 256]


@pytest.mark.parametrize("buffered_bytes", [0, 64 << 10, 256 << 10])
@pytest.mark.parametrize("bytes_a_second", [200_000, 600_000, 1_250_000, 12_500_000])
def test_a_slave_behind_a_slow_link_hears_of_its_master(
    bytes_a_second: int, buffered_bytes: int
) -> None:
    big = replace(CONFIG, chunk_bytes=4 << 20, window_bytes=1 << 30)
    session = MasterSession(
        view(end_offset=1 << 40, file_size=1 << 40, epochs=EpochTable(())), big, 0
    )
    session.receive(replace(HELLO, epochs=(), max_offset=0), 0.0)
    now = left = arrived = silence = 0.0
    while now < 20:
        (action,) = session.tick(now) or session.pump(now)
        assert isinstance(action, SendChunk)
        # one message is on its way into the buffers while the next is made
        now = max(now, left)
        end = max(arrived, now) + (action.length + 100) / bytes_a_second
        left = end - buffered_bytes / bytes_a_second
        silence, arrived = max(silence, end - arrived), end
        acked(session, session.sent, now)
    assert silence * 1000 < big.dead_after_ms


def test_a_lull_says_nothing_of_the_link() -> None:
    session = joined(view(end_offset=201))
    assert chunk(session.pump(0.0)).length == 1
    assert session.pump(0.1) == []
    session.view.end_offset = 1000
    assert chunk(session.pump(60.0)).length == 100


def test_a_chunk_says_how_far_the_master_is() -> None:
    session = joined(view(confirm=150))
    sent = chunk(session.pump(0.0))
    assert sent.frame(b"x", 7) == Chunk(200, 1, 0, 150, 1000, 7, 2, b"x", crc32(b"x"))


def test_bytes_older_than_the_epoch_table_are_epoch_0() -> None:
    master = view(epochs=EpochTable((EpochEntry(2, 450),)), min_offset=100)
    empty = replace(HELLO, epochs=(), max_offset=0, file_size=0)
    first = chunk(joined(master, empty).pump(0.0))
    assert (first.offset, first.epoch, first.epoch_start) == (100, 0, 100)


def test_a_heartbeat_comes_after_silence_and_is_empty() -> None:
    session = joined(view(end_offset=200))
    assert session.tick(0.2) == []
    beat = chunk(session.tick(0.3))
    assert (beat.offset, beat.length, beat.max_offset) == (200, 0, 200)
    assert session.tick(0.4) == []


def test_a_changed_confirm_offset_travels_alone_but_not_too_often() -> None:
    master = view(end_offset=300)
    session = joined(master)
    chunk(session.pump(1.0))
    assert session.pump(1.0) == []
    master.confirm = 300
    assert session.pump(1.001) == []
    assert 0 < session.confirm_delay(1.001) < 0.005
    assert chunk(session.pump(1.006)).confirm == 300
    assert session.pump(1.1) == []


def test_a_silent_slave_is_given_up() -> None:
    session = joined()
    acked(session, 200, 5.0)
    assert not any(isinstance(each, Close) for each in session.tick(8.0))
    (close,) = session.tick(8.1)
    assert close == Close("no frame received for 3.1 s")
    assert session.state is SessionState.CLOSED
    assert session.pump(9.0) == session.tick(9.0) == session.receive(HELLO, 9.0) == []


def test_a_resync_ends_the_stream() -> None:
    session = MasterSession(view(min_offset=740), CONFIG, 0.0)
    answer, close = session.receive(HELLO, 0.0)
    assert isinstance(answer, SendAnswer)
    assert answer.answer.action is HelloAction.RESYNC
    assert isinstance(close, Close)
    assert session.state is SessionState.CLOSED


def test_a_refusal_ends_the_stream() -> None:
    session = MasterSession(view(), CONFIG, 0.0)
    (refused,) = session.receive(replace(HELLO, cluster_id="x"), 0.0)
    assert isinstance(refused, SendRefusal)
    assert session.closed_reason == refused.refusal.reason


def test_frames_out_of_turn_are_refused() -> None:
    session = MasterSession(view(), CONFIG, 0.0)
    (refused,) = session.receive(Ack(2, "si", 0), 0.0)
    assert isinstance(refused, SendRefusal)
    assert "before the hello" in refused.refusal.reason
    session = joined()
    (refused,) = session.receive(HELLO, 0.0)
    assert isinstance(refused, SendRefusal)
    assert "second hello" in refused.refusal.reason


def test_a_slave_that_retention_has_overtaken_starts_over() -> None:
    master = view()
    session = joined(master)
    master.min_offset = 370
    (close,) = session.pump(0.0)
    assert isinstance(close, Close)
    assert "retention has deleted" in close.reason


def test_an_ack_above_what_was_sent_opens_no_window() -> None:
    session = joined()
    acked(session, 900)
    assert session.acked == 200
