"""The newest file of a crashed foreign index against the log, and whether tags are in it."""

from pathlib import Path

import numpy as np
import pytest

from fakes.derived import Derived
from fakes.memory_log import MemoryLog
from tandemlog.format.files.index_layout import entry_position, slot_position
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.dispatch.dispatch_source import DispatchSource
from tandemlog_server.storage.recovery.index_checking import (
    IndexCheck,
    check_newest,
    has_tag_entries,
)

ROOT = Path("/store")
SLOTS, ENTRIES = 11, 24


def log_of(records: int) -> MemoryLog:
    log = MemoryLog()
    for number in range(records):
        properties = {
            "UNIQ_KEY": f"u{number}",
            "KEYS": f"k{number % 5} x",
            "TAGS": f"t{number % 2}",
        }
        log.put("T", number % 3, properties=properties)
    return log


class Foreign:
    """An index that somebody wrote over `log`, without our state; `again` opens it."""

    def __init__(self, log: MemoryLog, *, tags: bool = True) -> None:
        self.files = MemoryFiles()
        self.log = log
        self.tags = tags
        self.derived().dispatch().index.close()

    def derived(self) -> Derived:
        return Derived.over(
            self.log, self.files, ROOT, slots=SLOTS, entries=ENTRIES, index_tags=self.tags
        )

    def again(self) -> Derived:
        derived = self.derived().open(dispatched=0)
        assert derived.index_findings is not None
        assert derived.index_findings.compare
        return derived

    @property
    def newest(self) -> bytearray:
        return self.files.content(ROOT / "index" / self.files.listdir(ROOT / "index")[-1])


def check(derived: Derived) -> IndexCheck:
    return check_newest(derived.index, derived.reput._source, derived.log.end)


def assert_whole(derived: Derived) -> None:
    """The index has every entry of the log once, in order, well chained."""
    fresh = Foreign(derived.log, tags=derived.reput._source.index_tags).derived()
    fresh.open(dispatched=0, clean=True)
    assert [each[1:] for each in derived.entries()] == [each[1:] for each in fresh.entries()]
    for file in derived.index.files:
        assert file.rebuild_chains() == 0


@pytest.mark.parametrize("records", [1, 5, 6, 7, 30])
def test_a_file_that_agrees_is_kept(records: int) -> None:
    derived = Foreign(log_of(records)).again()
    newest = derived.index.newest
    assert newest is not None
    total = newest.header.next_entry - 1
    assert check(derived) == IndexCheck(total, 0, 0)
    derived.dispatch()
    assert_whole(derived)


@pytest.mark.parametrize("entry", [1, 2, 3, 4, 7, 8, 12])
def test_entries_are_kept_up_to_the_first_that_differs(entry: int) -> None:
    foreign = Foreign(log_of(9))
    at = entry_position(SLOTS, entry)
    foreign.newest[at : at + 20] = bytes(20)
    derived = foreign.again()
    found = check(derived)
    # of the record of which an entry is lost, none is kept
    assert found.kept <= entry - 1
    assert found.kept + found.cut >= 12
    derived.dispatch()
    assert_whole(derived)


def test_an_entry_of_another_time_is_cut() -> None:
    foreign = Foreign(log_of(9))
    foreign.newest[entry_position(SLOTS, 7) + 15] ^= 4
    derived = foreign.again()
    found = check(derived)
    assert found.kept <= 6
    assert found.cut > 0
    derived.dispatch()
    assert_whole(derived)
    entries = np.concatenate([file.read(1, file.header.next_entry) for file in derived.index.files])
    assert not entries["time_diff"].any()


def test_the_time_of_a_first_entry_may_be_any() -> None:
    foreign = Foreign(log_of(9))
    foreign.newest[entry_position(SLOTS, 1) + 15] ^= 4
    assert check(foreign.again()).cut == 0


def test_slots_and_chains_are_set_right() -> None:
    foreign = Foreign(log_of(9))
    for slot in range(SLOTS):
        at = slot_position(slot)
        foreign.newest[at : at + 4] = (slot % 3).to_bytes(4)
    derived = foreign.again()
    found = check(derived)
    assert found.cut == 0
    assert found.chains > 0
    derived.dispatch()
    assert_whole(derived)


def test_entries_of_a_log_that_was_cut_go() -> None:
    foreign = Foreign(log_of(9))
    foreign.log.cut(sorted(foreign.log.times)[7])
    derived = foreign.again()
    check(derived)
    derived.dispatch()
    assert_whole(derived)


@pytest.mark.parametrize("records", [1, 2, 9, 40])
@pytest.mark.parametrize("tags", [True, False])
def test_whether_tags_are_indexed_is_recognised(records: int, tags: bool) -> None:
    foreign = Foreign(log_of(records), tags=tags)
    derived = foreign.derived().open(dispatched=foreign.log.end, clean=True)
    source = DispatchSource(foreign.log)
    # of the very first record a part may lie elsewhere, so it tells nothing
    expected = tags if records > 1 else None
    assert has_tag_entries(derived.index, source, foreign.log.end) is expected


def test_without_tags_in_the_log_nobody_can_tell() -> None:
    log = MemoryLog()
    for number in range(5):
        log.put("T", properties={"UNIQ_KEY": f"u{number}"})
    foreign = Foreign(log)
    derived = foreign.derived().open(dispatched=log.end, clean=True)
    assert has_tag_entries(derived.index, DispatchSource(log), log.end) is None


def test_a_foreign_index_without_tags_is_gone_on_with() -> None:
    log = log_of(20)
    foreign = Foreign(log, tags=False)
    derived = foreign.derived().open(dispatched=log.end, clean=True)
    log.put("T", 0, properties={"UNIQ_KEY": "new", "TAGS": "t0"})
    derived.queues.next_offset = derived.producers.next_offset = derived.index.next_offset
    derived.dispatch()
    hashes = np.array([each[2] for each in derived.entries()])
    assert len(hashes) == 20 * 3 + 1
