"""Every kind of slave, and what it is told."""

import zlib
from dataclasses import replace
from typing import Any

import pytest

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.errors import HandshakeRefusedError, ProtocolError
from tandemlog_server.ha.protocol.frames import Answer, Checksum, Hello, HelloAction, Refusal
from tandemlog_server.ha.protocol.handshake import (
    Crc,
    MasterView,
    SlaveView,
    check_answer,
    checksum_blocks,
    decide,
    proven_prefix,
)
from tandemlog_server.ha.state import Member

FILE = 1000
EPOCHS = (EpochEntry(1, 0), EpochEntry(2, 2500), EpochEntry(4, 5000))


def view(**changes: object) -> MasterView:
    values: dict[str, object] = {
        "cluster_id": "c",
        "node_id": "m",
        "incarnation": "mi",
        "endpoint": "m:1",
        "epoch": 4,
        "epochs": EpochTable(EPOCHS),
        "min_offset": 0,
        "end_offset": 6000,
        "confirm": 5500,
        "file_size": FILE,
        "proof_bytes": 100,
        **changes,
    }
    return MasterView(**values)  # type: ignore[arg-type]


def hello(**changes: object) -> Hello:
    base = Hello("c", "s", "si", epochs=EPOCHS[:2], max_offset=4000, file_size=FILE)
    return replace(base, **changes)  # type: ignore[arg-type]


def answer(asked: Hello, master: MasterView | None = None) -> Answer:
    frame = decide(asked, master or view()).frame
    assert isinstance(frame, Answer), frame
    return frame


def refusal(asked: Hello, master: MasterView | None = None) -> tuple[Refusal, str]:
    verdict = decide(asked, master or view())
    assert isinstance(verdict.frame, Refusal), verdict.frame
    return verdict.frame, verdict.alarm


def test_an_empty_slave_begins_where_the_master_does() -> None:
    empty = hello(epochs=(), max_offset=0, file_size=0)
    got = answer(empty, view(min_offset=2000))
    assert (got.action, got.offset, got.file_size) == (HelloAction.CONTINUE, 2000, FILE)
    assert got.proof_start == got.offset


def test_a_slave_behind_goes_on_at_its_end() -> None:
    got = answer(hello())
    assert (got.action, got.offset) == (HelloAction.CONTINUE, 4000)
    assert (got.proof_start, got.epochs, got.epoch) == (3900, EPOCHS, 4)


def test_a_slave_at_the_masters_end_goes_on() -> None:
    got = answer(hello(epochs=EPOCHS, max_offset=6000))
    assert (got.action, got.offset) == (HelloAction.CONTINUE, 6000)


def test_a_slave_with_bytes_of_a_term_that_went_another_way_is_cut() -> None:
    got = answer(hello(max_offset=5600, confirm_offset=5000))
    assert (got.action, got.offset) == (HelloAction.TRUNCATE, 5000)
    assert "agree up to 5000" in got.reason


def test_a_slave_ahead_of_the_master_is_cut_to_its_end() -> None:
    got = answer(hello(epochs=EPOCHS, max_offset=7000, confirm_offset=5500))
    assert (got.action, got.offset) == (HelloAction.TRUNCATE, 6000)


def test_a_term_that_only_the_slave_has_is_cut() -> None:
    mine = (*EPOCHS[:2], EpochEntry(3, 4200))
    got = answer(hello(epochs=mine, max_offset=4800, confirm_offset=4200))
    assert (got.action, got.offset) == (HelloAction.TRUNCATE, 4200)


def test_confirmed_bytes_are_never_cut() -> None:
    frame, alarm = refusal(hello(epochs=EPOCHS, max_offset=7000, confirm_offset=6500))
    assert not frame.retry
    assert "confirmed bytes up to 6500" in frame.reason
    assert "agrees only up to 6000" in frame.reason
    assert alarm == frame.reason


def test_a_slave_out_of_range_starts_over() -> None:
    got = answer(hello(max_offset=1500, confirm_offset=1500), view(min_offset=3000))
    assert (got.action, got.offset) == (HelloAction.RESYNC, 3000)
    assert "ends before the master's begins" in got.reason


def test_a_slave_whose_epochs_the_master_has_forgotten_starts_over() -> None:
    master = view(epochs=EpochTable(EPOCHS[2:]), min_offset=5000)
    got = answer(hello(confirm_offset=4000), master)
    assert (got.action, got.offset) == (HelloAction.RESYNC, 5000)


def test_a_slave_without_common_history_starts_over_if_nothing_is_confirmed() -> None:
    foreign = hello(epochs=(EpochEntry(3, 0),), max_offset=4000)
    assert answer(foreign).action is HelloAction.RESYNC
    frame, alarm = refusal(replace(foreign, confirm_offset=1))
    assert "confirmed bytes up to 1" in frame.reason
    assert alarm


def test_a_log_that_begins_behind_the_common_point_has_none() -> None:
    mine = hello(epochs=(EpochEntry(1, 0), EpochEntry(3, 900)), min_offset=1000, max_offset=4000)
    assert answer(mine).action is HelloAction.RESYNC


def test_a_foreign_cluster_is_refused() -> None:
    frame, alarm = refusal(hello(cluster_id="other"))
    assert not frame.retry
    assert "'other'" in frame.reason
    assert not alarm


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"node_id": "m"}, "the master's own"),
        ({"node_id": ""}, "must send its node id"),
        ({"incarnation": ""}, "must send its node id and incarnation"),
        ({"file_size": 500}, "have 500 bytes, the master's have 1000"),
    ],
)
def test_a_slave_that_cannot_be_one_is_refused(change: dict[str, object], words: str) -> None:
    frame, _ = refusal(hello(**change))
    assert not frame.retry
    assert words in frame.reason


def test_a_slave_that_has_seen_a_later_epoch_raises_the_alarm() -> None:
    for change in (
        {"accepted_epoch": 7},
        {"epochs": (*EPOCHS, EpochEntry(7, 5500)), "max_offset": 5600},
    ):
        frame, alarm = refusal(hello(**change))
        assert "has seen epoch 7" in frame.reason
        assert alarm


def test_a_slave_of_another_master_in_this_epoch_raises_the_alarm() -> None:
    """Two masters that did not know of each other took one epoch: their tables are equal."""
    two = {"epochs": EPOCHS, "max_offset": 6000, "accepted_epoch": 4}
    frame, alarm = refusal(hello(**two, master_id="n", master_incarnation="ni"))
    assert "has followed n in epoch 4" in frame.reason
    assert alarm
    assert answer(hello(**two, master_id="m", master_incarnation="mi"))


def test_the_same_master_on_another_disk_raises_the_alarm() -> None:
    frame, alarm = refusal(hello(master_id="m", master_incarnation="before"))
    assert "with another store" in frame.reason
    assert alarm
    assert answer(hello(master_id="m", master_incarnation="mi"))
    assert answer(hello(master_id="n", master_incarnation="before"))


# --- a log without epochs: a store copied from RocketMQ


def test_a_log_without_epochs_and_proof_starts_over() -> None:
    got = answer(hello(epochs=()))
    assert got.action is HelloAction.RESYNC
    assert "no common history" in got.reason


def test_a_log_without_epochs_goes_on_where_it_is_proven() -> None:
    offered = (Checksum(0, 4000, 1),)
    got = answer(hello(epochs=(), checksums=offered, proven=4000))
    assert (got.action, got.offset) == (HelloAction.CONTINUE, 4000)
    got = answer(hello(epochs=(), checksums=offered, proven=3000))
    assert (got.action, got.offset) == (HelloAction.TRUNCATE, 3000)


def test_checksums_win_over_an_epoch_table_that_lies() -> None:
    offered = (Checksum(0, 4000, 1),)
    got = answer(hello(checksums=offered, proven=1000))
    assert (got.action, got.offset) == (HelloAction.TRUNCATE, 1000)
    frame, alarm = refusal(hello(checksums=offered, proven=1000, confirm_offset=1001))
    assert "agrees only up to 1000" in frame.reason
    assert alarm


LOG = bytes(range(256)) * 80


def crc_of(log: bytes) -> Crc:
    return lambda low, high: zlib.crc32(log[low:high])


@pytest.mark.parametrize(
    ("flipped", "master_begin", "master_end", "proven"),
    [
        (None, 0, len(LOG), len(LOG)),
        (None, 0, len(LOG) + 50, len(LOG)),
        (None, 0, 9000, 8192),
        (5, 0, len(LOG), None),
        (9000, 0, len(LOG), 8192),
        (5, 8192, len(LOG), len(LOG)),
    ],
)
def test_equal_pieces_are_proven(
    flipped: int | None, master_begin: int, master_end: int, proven: int | None
) -> None:
    mine = bytearray(LOG)
    if flipped is not None:
        mine[flipped] ^= 1
    offered = checksum_blocks(0, len(mine), 8192, crc_of(bytes(mine)))
    master = view(min_offset=master_begin, end_offset=master_end)
    assert proven_prefix(offered, master, crc_of(LOG)) == proven


def test_checksums_with_a_gap_are_refused() -> None:
    offered = (Checksum(0, 10, 0), Checksum(20, 30, 0))
    with pytest.raises(ProtocolError, match="a gap or an overlap at 10"):
        proven_prefix(offered, view(), lambda low, high: 0)


# --- the slave's own look


def slave(**changes: Any) -> SlaveView:
    base = SlaveView(0, 4000, 3000, FILE, 4)
    return replace(base, **changes)


ANSWER = Answer(HelloAction.CONTINUE, 4000, epoch=4, file_size=FILE, max_offset=6000, min_offset=0)


def test_a_fitting_answer_is_followed() -> None:
    check_answer(ANSWER, slave())
    check_answer(replace(ANSWER, action=HelloAction.TRUNCATE, offset=3000), slave())
    check_answer(replace(ANSWER, offset=0), slave(max_offset=0, confirm=0))
    check_answer(replace(ANSWER, action=HelloAction.RESYNC, offset=3000, min_offset=3000), slave())


@pytest.mark.parametrize(
    ("got", "words", "retry"),
    [
        (replace(ANSWER, epoch=3), "has followed epoch 4", True),
        (replace(ANSWER, file_size=5), "the master's have 5", False),
        (
            replace(ANSWER, action=HelloAction.TRUNCATE, offset=2999),
            "everything below 3000 is confirmed",
            False,
        ),
        (
            replace(ANSWER, action=HelloAction.RESYNC, offset=2000, min_offset=2000),
            "bytes 2000..3000 are confirmed",
            False,
        ),
    ],
)
def test_an_answer_that_would_lose_something_is_not_followed(
    got: Answer, words: str, retry: bool
) -> None:
    with pytest.raises(HandshakeRefusedError, match=words) as refused:
        check_answer(got, slave())
    assert refused.value.retry is retry


@pytest.mark.parametrize(
    "got",
    [
        replace(ANSWER, offset=3999),
        replace(ANSWER, offset=4001),
        replace(ANSWER, action=HelloAction.TRUNCATE, offset=4001),
    ],
)
def test_an_answer_that_does_not_fit_is_a_protocol_error(got: Answer) -> None:
    with pytest.raises(ProtocolError, match="does not fit this log"):
        check_answer(got, slave())


@pytest.mark.parametrize("size", [1, 4095, 1 << 31, 1 << 40])
def test_an_empty_slave_takes_over_no_file_size_that_its_store_would_not_open(size: int) -> None:
    empty = slave(max_offset=0, confirm=0)
    check_answer(replace(ANSWER, offset=0, file_size=4096), empty)
    with pytest.raises(ProtocolError, match=f"master.s log files have {size} bytes"):
        check_answer(replace(ANSWER, offset=0, file_size=size), empty)


IN_SYNC = frozenset({Member("s", "si")})
"""The slave was in sync with a master that has lost its page cache since."""


def test_a_slave_that_may_hold_what_the_master_lost_is_not_cut() -> None:
    ahead = hello(epochs=EPOCHS[:2], max_offset=5100)
    assert answer(ahead).action is HelloAction.TRUNCATE
    frame, alarm = refusal(ahead, view(unheard=IN_SYNC))
    assert not frame.retry
    assert "lost everything after 5000" in alarm


def test_a_slave_that_may_hold_what_the_master_lost_does_not_start_over() -> None:
    # the master has lost all of its log, and with it the epochs that both had
    lost = view(epochs=EpochTable((EpochEntry(4, 0),)), end_offset=0, confirm=0)
    assert answer(hello(), lost).action is HelloAction.RESYNC
    _, alarm = refusal(hello(), replace(lost, unheard=IN_SYNC))
    assert "lost everything after 0" in alarm


def test_a_slave_that_may_hold_what_the_master_lost_but_holds_no_more_goes_on() -> None:
    assert answer(hello(), view(unheard=IN_SYNC)).action is HelloAction.CONTINUE
    assert answer(hello(incarnation="another", max_offset=5100), view(unheard=IN_SYNC)).action is (
        HelloAction.TRUNCATE
    )
    # what its log lacks below the master's begin was dropped by retention, not lost
    late = view(min_offset=4500, unheard=IN_SYNC)
    assert answer(hello(), late).action is HelloAction.RESYNC
