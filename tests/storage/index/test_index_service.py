"""The index against a dictionary, across rolls, truncations and crashes."""

import errno
import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakes.indexes import KEYS, NOW, ROOT, Index, fill, read_header
from tandemlog.format.files.index_layout import (
    key_hash,
)
from tandemlog_server.storage.errors import FlushFailedError, StoreError
from tandemlog_server.storage.index.index_service import next_index_name
from tandemlog_server.storage.recovery.index_checking import check_newest


@pytest.fixture
def index() -> Index:
    return Index()


def test_a_full_file_is_followed_by_another(index: Index) -> None:
    fill(index, 20)
    index.dispatch(3)
    index.dispatch()
    index.check()
    assert [file.header.next_entry for file in index.service.files] == [12, 12, 12, 8]
    for before, after in pairwise(index.service.files):
        assert before.name < after.name
        # a file begins where the one before ends: within a record, or with the next
        assert 0 <= after.header.begin_physical_offset - before.header.end_physical_offset <= 10


@pytest.mark.parametrize("at_once", [True, False])
def test_a_file_with_a_header_follows_none_without(index: Index, at_once: bool) -> None:
    """RocketMQ takes a killed process's files by the headers that are on the disk: it keeps one
    that is old enough, and adds nothing below its end."""
    fill(index, 20)
    for last in [None] if at_once else range(1, 21):
        index.dispatch(last)
        on_disk = [read_header(index, name) for name in index.names()]
        held = [file.header for file in index.service.files]
        assert on_disk[:-1] == held[:-1]


def test_files_that_are_made_at_one_time_have_names_of_their_own(index: Index) -> None:
    fill(index, 30)
    index.dispatch()
    names = index.names()
    assert len(set(names)) == len(names) == 6
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ("", "20261121000000000"),
        ("20261120235959999", "20261121000000000"),
        ("20261121000000000", "20261121000000001"),
        ("20261121000000999", "20261121000001000"),
        ("20261231235959999", "20270101000000000"),
    ],
)
def test_a_name_is_later_than_the_newest(
    newest: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "tandemlog_server.storage.index.index_service"
    monkeypatch.setattr(f"{module}.index_file_name", lambda now_ms: "20261121000000000")
    assert next_index_name(NOW, newest) == expected


def test_what_was_dispatched_is_passed_over(index: Index) -> None:
    fill(index, 3)
    index.dispatch()
    hashes = np.array([key_hash("T", "k0"), key_hash("T", "k9")], dtype=np.int32)
    offsets = np.array([0, 30], dtype=np.int64)
    index.service.insert(hashes, offsets, NOW + offsets, 40)
    assert index.found("k0") == [0]
    assert index.found("k9") == [30]
    assert index.service.next_offset == 40


def test_a_query_has_a_limit_and_a_range_of_time(index: Index) -> None:
    for _ in range(30):
        index.add("k0")
    index.dispatch()
    assert list(index.service.query("T", "k0", max_entries=3)) == [290, 280, 270]
    found = list(index.service.query("T", "k0", NOW + 5000, NOW + 9000))
    assert found == [90, 80, 70, 60, 50]
    assert list(index.service.query("U", "k0")) == []
    assert list(index.service.query("T", "k0", max_entries=0)) == []


def test_a_full_disk_stops_the_index_and_nothing_else(index: Index) -> None:
    fill(index, 4)
    index.dispatch()
    fill(index, 8)
    index.files.fail("preallocate", errno.ENOSPC, times=2)
    index.dispatch()
    stopped = index.service.stopped
    assert stopped is not None
    assert "above log offset 40" in str(stopped)
    index.dispatch()
    assert index.service.next_offset == 40
    index.check()
    assert index.names() == [index.service.files[0].name]
    assert index.service.resume()
    index.dispatch()
    assert index.service.stopped is not None
    assert index.service.resume()
    index.dispatch()
    index.check()
    assert index.service.next_offset == 120


def test_without_space_for_the_first_file_there_is_no_index_yet(index: Index) -> None:
    fill(index, 4)
    index.files.fail("preallocate", errno.ENOSPC, times=2)
    index.dispatch()
    assert index.service.stopped is not None
    assert not index.service.resume()
    assert index.service.resume()
    index.dispatch()
    index.check()


def test_another_fault_of_the_disk_is_raised(index: Index) -> None:
    fill(index, 1)
    index.files.fail("pwrite", errno.EIO)
    with pytest.raises(StoreError, match="could not be written"):
        index.dispatch()


def test_a_failed_fsync_is_fatal(index: Index) -> None:
    fill(index, 1)
    index.dispatch()
    index.files.fail("fdatasync")
    with pytest.raises(FlushFailedError, match="index"):
        index.service.flush()


@pytest.mark.parametrize("keep", [19, 18, 11, 6, 5, 1, 0])
def test_truncation(index: Index, keep: int) -> None:
    fill(index, 19)
    index.dispatch()
    del index.keys[keep:]
    index.service.truncate(index.end)
    assert index.service.next_offset == index.end
    index.check()
    fill(index, 7)
    index.dispatch()
    index.check()


def test_truncation_leaves_what_would_be_there_without_the_rest() -> None:
    one, other = Index(entries=40), Index(entries=40)
    fill(one, 12)
    one.dispatch(9)
    one.service.flush()
    before = bytes(one.files.content(ROOT / "index" / one.names()[0]))
    one.dispatch()
    del one.keys[9:]
    one.service.truncate(one.end)
    assert bytes(one.files.content(ROOT / "index" / one.names()[0])) == before
    fill(other, 9)
    other.dispatch()
    other.service.flush()
    assert bytes(other.files.content(ROOT / "index" / other.names()[0])) == before


def test_old_files_go_with_the_log_save_the_newest(index: Index) -> None:
    fill(index, 20)
    index.dispatch()
    newest = index.names()[-1]
    assert index.service.drop_before(60) == 1
    assert index.found("k1")[-1] > 50
    assert index.service.drop_before(10_000) == 2
    assert index.names() == [newest]


@pytest.mark.parametrize("newest", [False, True])
def test_a_file_that_cannot_be_deleted_is_still_there(index: Index, newest: bool) -> None:
    fill(index, 20)
    index.dispatch()
    names = index.names()
    index.files.fail("unlink", name=str(ROOT / "index"), times=1)
    with pytest.raises(OSError, match="Input/output"):
        index.service.drop_newest() if newest else index.service.drop_before(10_000)
    assert [file.name for file in index.service.files] == names
    index.check()
    if newest:
        index.service.drop_newest()
    else:
        index.service.drop_before(10_000)
    assert index.names() == (names[:-1] if newest else names[-1:])


def test_a_query_under_way_outlives_the_deletion_of_its_file(index: Index) -> None:
    for _ in range(30):
        index.add("k0")
    index.dispatch()
    query = index.service.query("T", "k0")
    found = [next(query) for _ in range(9)]
    index.service.drop_before(200)
    assert [*found, *query] == list(range(290, 100, -10))


def test_flush_and_a_power_failure(index: Index) -> None:
    fill(index, 9)
    index.dispatch()
    assert index.service.flush() == 90
    fill(index, 9)
    index.dispatch()
    index.files.crash()
    findings = index.load(clean=False)
    assert index.service.next_offset == 90
    assert findings.files == 2
    assert findings.entries == 18
    index.dispatch()
    index.check()


def test_drafts_of_a_crash_are_removed(index: Index) -> None:
    index.files.make_directory(ROOT / "tandemlog")
    for name in ("index-20261121071456450", "spare.new"):
        index.files.open(ROOT / "tandemlog" / name, create=True)
    index.load(clean=False)
    assert index.files.listdir(ROOT / "tandemlog") == ["spare.new"]


def test_an_index_on_a_disk_of_its_own(index: Index) -> None:
    index.files.fail("rename", errno.EXDEV, name="/tandemlog/index-")
    fill(index, 9)
    index.dispatch()
    index.check()
    index.service.flush()
    draft = ROOT / "index" / "index-20261121071456450"
    index.files.open(draft, create=True)
    index.load(clean=False)
    assert index.files.status(draft) is None
    assert all(name.isdecimal() for name in index.names())
    index.check()


def test_reset_begins_anew(index: Index) -> None:
    fill(index, 9)
    index.dispatch()
    index.files.rename(ROOT / "index", ROOT / "aside")
    index.service.reset(0)
    assert index.found("k0") == []
    index.dispatch()
    index.check()


class Records:
    """The log of an Index as check_newest reads it: a record of 10 bytes a row of keys."""

    def __init__(self, index: Index) -> None:
        self.log = SimpleNamespace(min_offset=0)
        self._keys = index.keys

    def batch(self, start: int, limit: int, *, index: bool) -> SimpleNamespace:
        rows = self._keys[start // 10 : limit // 10]
        owners = [number for number, keys in enumerate(rows) for _ in keys]
        columns = SimpleNamespace(
            key_hash=np.array([key_hash("T", key) for keys in rows for key in keys], np.int32),
            physical_offset=start + 10 * np.arange(len(rows)),
            entry_record=np.array(owners, dtype=np.int64),
            size=np.full(len(rows), 10),
        )
        return SimpleNamespace(start=start, end=limit, columns=columns)


class IndexAgainstDictionary(RuleBasedStateMachine):
    """Whatever happens, every key is found at the records that have it, newest first."""

    @initialize()
    def begin(self) -> None:
        self.index = Index(slots=5, entries=16)

    def recover(self, *, clean: bool) -> None:
        if self.index.load(clean=clean).compare:
            check_newest(self.index.service, Records(self.index), self.index.end)  # type: ignore[arg-type]

    @rule(records=st.lists(st.lists(st.sampled_from(KEYS), max_size=4), max_size=12))
    def append(self, records: list[list[str]]) -> None:
        self.index.keys += records

    @rule(count=st.integers(1, 20))
    def dispatch(self, count: int) -> None:
        self.index.dispatch(self.index.service.next_offset // 10 + count)

    @rule()
    def flush(self) -> None:
        assert self.index.service.flush() == self.index.service.next_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        del self.index.keys[round(share * len(self.index.keys)) :]
        self.index.service.truncate(self.index.end)

    @rule(seed=st.integers(0, 999), survive=st.booleans(), share=st.floats(0.5, 1))
    def lose_power(self, seed: int, survive: bool, share: float) -> None:
        self.index.files.crash(random.Random(seed) if survive else None)
        del self.index.keys[round(share * len(self.index.keys)) :]
        self.recover(clean=False)

    @rule(share=st.floats(0.5, 1))
    def kill(self, share: float) -> None:
        self.index.files.kill()
        del self.index.keys[round(share * len(self.index.keys)) :]
        self.recover(clean=False)

    @rule()
    def close(self) -> None:
        self.index.service.flush()
        self.index.service.close()
        self.recover(clean=True)

    @rule(share=st.floats(0, 1))
    def begin_log_later(self, share: float) -> None:
        """Files that hold nothing of the log any more go; what they had is not asked for."""
        start = 10 * round(share * self.index.service.next_offset / 10)
        self.index.service.drop_before(start)
        for number in range(start // 10):
            self.index.keys[number] = []

    @invariant()
    def keys_are_found(self) -> None:
        if not hasattr(self, "index"):
            return
        for key in KEYS:
            rows = {10 * n for n, keys in enumerate(self.index.keys) if not keys}
            found = [offset for offset in self.index.found(key) if offset not in rows]
            assert found == self.index.expected(key)
        for file in self.index.service.files:
            assert file.header.next_entry > 1


TestIndexAgainstDictionary = IndexAgainstDictionary.TestCase


TestIndexAgainstDictionary.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
