"""The start of a term: a new epoch every time, old bytes covered, nobody forgotten."""

from dataclasses import replace
from random import Random

import pytest

from fakes.fake_store import FakeDisk, FakeStore
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.term import (
    Term,
    begin_term,
    may_have_lost,
    next_epoch,
    own_position,
)
from tandemlog_server.ha.state import HaState, InSyncRecord, Member
from tandemlog_server.storage.config import FlushMode

STATE = HaState("c", "m", "i1")
CONFIG = HaConfig("c", "m", mode=Replication.SYNC, min_in_sync=2)
B = Member("b", "1")


def filled(disk: FakeDisk | None = None, flush: FlushMode = FlushMode.ASYNC) -> FakeStore:
    store = FakeStore(disk or FakeDisk(), flush=flush)
    store.master = True
    for number in range(5):
        store.append(b"%d" % number * 20)
    store.flush()
    store.become_slave()
    return store


def begin(store: FakeStore, state: HaState = STATE) -> Term:
    saved: list[HaState] = []
    term = begin_term(store, state, saved.append, CONFIG)
    assert saved == [term.state]
    return term


def test_the_epoch_is_above_all_that_is_known() -> None:
    assert next_epoch(EpochTable(), STATE) == 1
    assert next_epoch(EpochTable((EpochEntry(4, 0),)), STATE) == 5
    assert next_epoch(EpochTable((EpochEntry(4, 0),)), replace(STATE, accepted_epoch=9)) == 10


def test_every_start_is_a_new_epoch_at_the_logs_end() -> None:
    store = filled()
    end = store.log.wrote.value
    first = begin(store)
    assert (first.view.epoch, first.view.end_offset) == (1, end)
    assert store.master
    second = begin(store, first.state)
    assert second.view.epoch == 2
    assert store.epochs.table.entries == (EpochEntry(0, 0), EpochEntry(2, end))


def test_the_bytes_of_a_rocketmq_store_are_epoch_0() -> None:
    store = filled()
    begin(store)
    assert store.epochs.table.entries[0] == EpochEntry(0, 0)


def test_bytes_below_a_table_that_begins_late_are_epoch_0() -> None:
    store = filled()
    store.epochs.replace(EpochTable((EpochEntry(3, 50),)))
    assert begin(store).view.epochs.entries[:2] == (EpochEntry(0, 0), EpochEntry(3, 50))


def test_an_empty_store_has_no_old_bytes() -> None:
    store = FakeStore(FakeDisk())
    assert begin(store).view.epochs.entries == (EpochEntry(1, 0),)


def test_the_last_set_goes_on() -> None:
    state = replace(STATE, record=InSyncRecord(1, 8, frozenset({Member("m", "old"), B})))
    term = begin(filled(), state)
    members, known = frozenset({term.me, B}), frozenset({"m", "b"})
    assert term.record == InSyncRecord(1, 9, members, known=known, settled=False)
    assert term.state.record == term.record


def test_a_set_without_others_is_settled() -> None:
    term = begin(filled(), replace(STATE, record=InSyncRecord(1, 8, frozenset({Member("m", "i")}))))
    assert term.record.settled


def test_members_are_waited_for_after_the_machine_stopped() -> None:
    state = replace(STATE, record=InSyncRecord(1, 8, frozenset({B})))
    store = filled()
    store.count_unflushed()
    store.disk.power_cut(Random(1))
    term = begin(store, state)
    assert term.record.unheard == term.view.unheard == {B}
    assert store.doubt == "", "the record says it now"
    again = begin(filled(), term.state)
    assert again.record.unheard == {B}, "also over another start"


def test_a_doubt_is_not_settled_before_the_record_is_durable() -> None:
    state = replace(STATE, record=InSyncRecord(1, 8, frozenset({B})))
    store = filled()
    store.count_unflushed()
    store.disk.power_cut(Random(1))

    def full(_: HaState) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        begin_term(store, state, full, CONFIG)
    assert begin(store, state).record.unheard == {B}


def test_a_term_in_async_replication_leaves_the_doubt_to_a_later_one() -> None:
    state = replace(STATE, record=InSyncRecord(1, 8, frozenset({B})))
    store = filled()
    store.count_unflushed()
    store.disk.power_cut(Random(1))
    saved: list[HaState] = []
    between = begin_term(store, state, saved.append, HaConfig("c", "m"))
    assert (between.record.unheard, store.doubt != "") == (frozenset(), True)
    assert begin(store, between.state).record.unheard == {B}


def test_only_a_master_that_promises_what_is_not_fsynced_says_so() -> None:
    for config, flush, counts in (
        (CONFIG, FlushMode.ASYNC, True),
        (CONFIG, FlushMode.SYNC, False),
        (HaConfig("c", "m"), FlushMode.ASYNC, False),
    ):
        store = filled(flush=flush)
        begin_term(store, STATE, lambda _: None, config)
        assert store.disk.counts_unflushed is counts


def test_what_may_be_lost() -> None:
    store = filled()
    assert not may_have_lost(store, CONFIG)
    store.disk.doubt = "a power cut"
    assert may_have_lost(store, CONFIG)
    assert not may_have_lost(store, HaConfig("c", "m")), "nobody was promised"
    synced = filled(flush=FlushMode.SYNC)
    synced.disk.power_cut(Random(1))
    assert not may_have_lost(synced, CONFIG)


def test_the_own_position_is_what_the_flush_mode_promises() -> None:
    for flush, counted in ((FlushMode.ASYNC, "wrote"), (FlushMode.SYNC, "flushed")):
        store = filled(flush=flush)
        store.master = True
        store.append(b"more")
        assert store.log.flushed.value < store.log.wrote.value
        assert own_position(store) == getattr(store.log, counted).value


def test_a_power_cut_leaves_whole_records() -> None:
    disk = FakeDisk()
    store = filled(disk)
    store.master = True
    end = store.log.wrote.value
    store.append(b"x" * 100)
    for seed in range(20):
        copy = FakeDisk(data=bytearray(disk.data), durable=disk.durable)
        copy.power_cut(Random(seed))
        assert FakeStore(copy).log.wrote.value in (end, end + 104)
