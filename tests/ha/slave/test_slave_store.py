"""A slave's actions on its store: order, durability, what is confirmed."""

import zlib
from dataclasses import replace

import pytest

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore, record
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import ChunkDamagedError, DivergedError, LogMovedError
from tandemlog_server.ha.protocol.frames import Hello, Metadata
from tandemlog_server.ha.slave.session import (
    AcceptEpoch,
    AdoptEpochs,
    Append,
    BeginAt,
    CheckProof,
    Confirm,
    Prepared,
    ReplaceTable,
    SetAside,
    Truncate,
)
from tandemlog_server.ha.slave.store import Outcome, SlaveStore
from tandemlog_server.ha.state import HaState, Member
from tandemlog_server.storage.errors import FlushFailedError

CONFIG = HaConfig(
    "c", "s", role=Role.SLAVE, master_endpoint="m:1", log_first_bytes=1000, log_first_ms=10_000
)
DATA = record(b"a" * 46) + record(b"b" * 46)
MASTER = Member("m", "mi")


class Bench:
    """A slave's store, what it saved, and the order of what it did."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.calls: list[str] = []
        self.store = FakeStore(disk or FakeDisk(), self.calls.append)
        self.saved: list[HaState] = []
        self.clock = FakeClock()
        self.slave = SlaveStore(
            self.store, HaState("c", "s", "i1"), self.save, lambda: "i2", CONFIG, self.clock
        )

    def save(self, state: HaState) -> None:
        self.calls.append("save")
        self.saved.append(state)

    def greet(self, *, distrust: bool = False) -> Hello:
        return self.slave.greeting(Hello("c", "s", ""), distrust=distrust)[0]

    def prepared(self) -> None:
        assert self.slave.run([AcceptEpoch(1, MASTER), BeginAt(0, 4096), Prepared()])
        self.calls.clear()


def test_a_log_that_has_lost_its_begin_to_retention_is_compared_anew_by_the_next_handshake() -> (
    None
):
    """The proof is about bytes that were there when the slave greeted."""
    disk = FakeDisk()
    bench = Bench(disk)
    bench.prepared()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0))])
    disk.start = len(DATA) // 2
    del disk.data[: disk.start]
    with pytest.raises(LogMovedError, match="the log begins at 50 now: retention has deleted 20"):
        bench.slave.run([CheckProof(20, 100, zlib.crc32(DATA[20:]))])
    bench.slave.run([CheckProof(50, 100, zlib.crc32(DATA[50:]))])


def test_bytes_are_durable_before_they_are_reported() -> None:
    bench = Bench()
    bench.prepared()
    prepared, outcome = bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0))])
    assert not prepared
    assert outcome == Outcome(100, 0)
    assert bench.store.disk.durable == 100
    assert bench.calls == ["append_raw", "flush"]
    assert bench.store.epochs.table.entries == (EpochEntry(1, 0),)


def test_the_epoch_is_there_before_its_bytes() -> None:
    bench = Bench()
    bench.prepared()
    bench.store.before = lambda call: seen.append(bench.store.epochs.table.entries)
    seen: list[tuple[EpochEntry, ...]] = []
    bench.slave.run([Append(0, DATA, EpochEntry(1, 0))])
    assert seen == [(EpochEntry(1, 0),)]


def test_the_own_confirm_offset_is_what_is_durable_here() -> None:
    bench = Bench()
    bench.prepared()
    bench.slave.run([Append(0, DATA, EpochEntry(1, 0)), Confirm(60, 100)])
    assert bench.store.confirmed.value == 0
    bench.slave.flush()
    assert bench.store.confirmed.value == 60
    bench.slave.run_and_flush([Confirm(500, 500)])
    assert bench.store.confirmed.value == 100
    bench.slave.run_and_flush([Confirm(70, 500)])
    assert bench.store.confirmed.value == 100


def test_nothing_is_confirmed_before_the_logs_are_known_to_be_equal() -> None:
    bench = Bench()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0)), Confirm(100, 100)])
    assert bench.store.confirmed.value == 0


def test_far_behind_the_log_comes_first_but_not_for_ever() -> None:
    bench = Bench()
    bench.prepared()
    bench.clock.advance(100)
    bench.slave.flush()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0)), Confirm(100, 5000)])
    assert bench.store.confirmed.value == 0
    bench.clock.advance(9.9)
    bench.slave.flush()
    assert bench.store.confirmed.value == 0
    bench.clock.advance(0.2)
    bench.slave.flush()
    assert bench.store.confirmed.value == 100
    bench.slave.run_and_flush([Append(100, DATA, None), Confirm(200, 1100)])
    assert bench.store.confirmed.value == 200, "close behind again"


def test_what_was_held_back_is_confirmed_when_the_stream_ends() -> None:
    bench = Bench()
    bench.prepared()
    bench.clock.advance(100)
    bench.slave.flush()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0)), Confirm(100, 5000)])
    bench.greet()
    assert bench.store.confirmed.value == 100


def test_other_bytes_than_the_masters_stop_everything() -> None:
    bench = Bench()
    bench.prepared()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0))])
    bench.slave.run([CheckProof(20, 100, zlib.crc32(DATA[20:]))])
    with pytest.raises(DivergedError, match=r"bytes 20\.\.100"):
        bench.slave.run([CheckProof(20, 100, 1), Append(100, DATA, None)])
    assert bench.store.log.wrote.value == 100


def test_a_term_of_which_no_byte_came_is_forgotten() -> None:
    """Else the next master's bytes would be those of a term in which they were not written, and a
    replica that has them under their own would be told that they are lost."""
    bench = Bench()
    bench.prepared()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(4, 0))])
    with pytest.raises(ChunkDamagedError):
        bench.slave.run([Append(100, DATA, EpochEntry(5, 100), crc=1)])
    assert bench.greet().epochs == (EpochEntry(4, 0),)
    # the next master had more of term 4 than the one of term 5
    bench.slave.run_and_flush([Append(100, DATA, None), Append(200, DATA, EpochEntry(7, 200))])
    assert bench.store.epochs.table.entries == (EpochEntry(4, 0), EpochEntry(7, 200))


def test_an_epoch_is_remembered_once() -> None:
    bench = Bench()
    bench.slave.run([AcceptEpoch(4, MASTER), AcceptEpoch(4, MASTER)])
    assert [(each.accepted_epoch, each.followed) for each in bench.saved] == [(4, MASTER)]


def test_an_empty_log_takes_the_masters_begin_and_file_size() -> None:
    bench = Bench()
    bench.slave.run([BeginAt(2048, 1024), Append(2048, DATA, EpochEntry(1, 0))])
    assert (bench.store.log.min_offset, bench.store.log.file_size) == (2048, 1024)
    assert bench.store.log.wrote.value == 2148


def test_a_truncation_takes_the_epochs_along() -> None:
    bench = Bench()
    bench.prepared()
    bench.slave.run([Append(0, DATA, EpochEntry(1, 0)), Append(100, DATA, EpochEntry(2, 100))])
    bench.slave.run([Truncate(100)])
    assert bench.store.log.wrote.value == 100
    assert bench.store.epochs.table.entries == (EpochEntry(1, 0),)


def test_a_log_that_is_set_aside_is_another_incarnation_first() -> None:
    bench = Bench()
    bench.prepared()
    bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0))])
    bench.calls.clear()
    bench.slave.run([SetAside(4096, "why")])
    assert bench.calls == ["save", "reset"]
    assert bench.saved[-1].incarnation == "i2"
    assert bench.store.disk.aside == [DATA]
    assert bench.store.epochs.table.entries == ()


def test_epochs_of_a_proven_log_are_the_masters_below_it() -> None:
    bench = Bench()
    bench.slave.run([AdoptEpochs((EpochEntry(1, 0), EpochEntry(2, 50), EpochEntry(3, 90)), 90)])
    assert bench.store.epochs.table.entries == (EpochEntry(1, 0), EpochEntry(2, 50))


def test_tables_are_replaced_and_an_unknown_one_is_passed_over() -> None:
    bench = Bench()
    kinds = ("topics", "groups", "consumer-offsets", "something new")
    bench.slave.run([ReplaceTable(Metadata(kind, kind.encode(), 1)) for kind in kinds])
    assert bench.store.topics.json == b"topics"
    assert bench.store.groups.json == b"groups"
    assert bench.store.consumer_offsets.json == b"consumer-offsets"


def test_a_failing_fsync_is_not_swallowed() -> None:
    bench = Bench()
    bench.prepared()
    bench.store.disk.fsync_fails = True
    with pytest.raises(FlushFailedError, match="EIO"):
        bench.slave.run_and_flush([Append(0, DATA, EpochEntry(1, 0))])
    assert bench.store.disk.durable == 0


# --- the greeting


def with_data(epochs: EpochTable) -> Bench:
    disk = FakeDisk(data=bytearray(DATA), durable=len(DATA), epochs=epochs, confirmed=60)
    return Bench(disk)


def test_an_empty_slave_says_so() -> None:
    hello = Bench().greet()
    assert (hello.min_offset, hello.max_offset, hello.file_size) == (0, 0, 0)
    assert (hello.incarnation, hello.checksums) == ("i1", ())


def test_a_slave_with_epochs_offers_its_table() -> None:
    bench = with_data(EpochTable((EpochEntry(1, 0),)))
    bench.slave.state = replace(bench.slave.state, accepted_epoch=3, followed=MASTER)
    hello = bench.greet()
    assert (hello.epochs, hello.max_offset, hello.file_size) == ((EpochEntry(1, 0),), 100, 4096)
    assert (hello.accepted_epoch, hello.master_id, hello.master_incarnation) == (3, "m", "mi")
    assert (hello.confirm_offset, hello.checksums) == (60, ())


def test_a_log_without_epochs_offers_checksums_and_knows_nothing_confirmed() -> None:
    hello = with_data(EpochTable()).greet()
    assert [(each.start, each.end) for each in hello.checksums] == [(0, 100)]
    assert hello.checksums[0].crc == zlib.crc32(DATA)
    assert hello.confirm_offset == 0


def test_a_table_that_has_lied_is_backed_by_checksums() -> None:
    bench = with_data(EpochTable((EpochEntry(1, 0),)))
    assert bench.greet(distrust=True).checksums
    assert not Bench().greet(distrust=True).checksums
