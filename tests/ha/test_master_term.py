"""The start of a term: a new epoch every time, old bytes covered, nobody forgotten."""

from dataclasses import replace
from random import Random

from fakes.fake_store import FakeDisk, FakeRecovery, FakeStore
from ha.config import HaConfig, Replication
from ha.master_term import Term, begin_term, may_have_lost, next_epoch, own_position
from ha.state import HaState, InSyncRecord, Member
from storage.config import FlushMode
from tandemlog.format.epochs import EpochEntry, EpochTable

STATE = HaState("c", "m", "i1", boot_id="boot 1")
CONFIG = HaConfig("c", "m", replication=Replication.SYNC, min_in_sync=2)
B = Member("b", "1")


def filled(disk: FakeDisk | None = None, flush: FlushMode = FlushMode.ASYNC) -> FakeStore:
    store = FakeStore(disk or FakeDisk(), flush=flush)
    store.master = True
    for number in range(5):
        store.append(b"%d" % number * 20)
    store.flush()
    store.become_slave()
    return store


def begin(store: FakeStore, state: HaState = STATE, boot_id: str = "boot 1") -> Term:
    saved: list[HaState] = []
    term = begin_term(store, state, saved.append, CONFIG, boot_id)
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
    assert store.epochs.table.epoch_of(0) == 0


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
    assert term.record == InSyncRecord(1, 9, frozenset({term.me, B}))
    assert term.state.record == term.record


def test_members_are_waited_for_after_the_machine_stopped() -> None:
    state = replace(STATE, record=InSyncRecord(1, 8, frozenset({B})))
    term = begin(filled(), state, "boot 2")
    assert term.record.unheard == term.view.unheard == {B}
    again = begin(filled(), term.state, "boot 2")
    assert again.record.unheard == {B}, "also over another start"


def test_what_may_be_lost() -> None:
    store = filled()
    assert not may_have_lost(store, STATE, CONFIG, "boot 1"), "the page cache is still there"
    assert may_have_lost(store, STATE, CONFIG, "boot 2")
    assert may_have_lost(store, replace(STATE, boot_id=""), CONFIG, "")
    assert not may_have_lost(store, STATE, HaConfig("c", "m"), "boot 2"), "nobody was promised"
    assert not may_have_lost(filled(flush=FlushMode.SYNC), STATE, CONFIG, "boot 2")
    store.recovery = FakeRecovery(clean_stop=True)
    assert not may_have_lost(store, STATE, CONFIG, "boot 2")
    store.recovery = FakeRecovery(clean_stop=True, cut_saved="/store/tandemlog/cut-5")
    assert may_have_lost(store, STATE, CONFIG, "boot 1")


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
