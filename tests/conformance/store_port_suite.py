"""What every store must do that replicates: storage.MessageStore, and the fake in memory.

A test class inherits `StorePortSuite` and gives it the fixture `opened`: an empty store and a way
to put a message into it while it is a master.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.errors import StoreError


@dataclass
class Opened:
    """`put` stores a message; `another` makes one more empty store."""

    store: StorePort
    put: Callable[[], None]
    another: Callable[[], StorePort]


def log_of(store: StorePort) -> bytes:
    """The whole log."""
    data, position = b"", store.log.min_offset
    while position < store.log.committed.value:
        piece = bytes(store.log.read(position, 1 << 20))
        data += piece
        position += len(piece)
    return data


def copy_log(source: StorePort, target: StorePort) -> None:
    """As a slave does: pieces that cross no file."""
    position = source.log.min_offset
    while position < source.log.committed.value:
        piece = source.log.read(position, 300)
        target.append_raw(position, piece)
        position += len(piece)


class StorePortSuite:
    """See the module."""

    def test_an_empty_store(self, opened: Opened) -> None:
        log = opened.store.log
        assert log.min_offset == log.wrote.value == log.committed.value == log.flushed.value == 0
        assert opened.store.confirmed.value == 0
        assert opened.store.epochs.table == EpochTable()
        assert opened.store.doubt == ""
        opened.store.forget_doubt()

    def test_a_master_begins_an_epoch_and_takes_puts(self, opened: Opened) -> None:
        store = opened.store
        store.become_slave()
        with pytest.raises(StoreError):
            opened.put()
        store.become_master(3)
        assert list(store.epochs.table.entries) == [EpochEntry(3, 0)]
        opened.put()
        end = store.log.wrote.value
        assert end > 0
        store.become_master(4)
        assert list(store.epochs.table.entries) == [EpochEntry(3, 0), EpochEntry(4, end)]

    def test_all_counts_as_fsynced_once_it_is(self, opened: Opened) -> None:
        store = opened.store
        store.become_master(1)
        store.count_unflushed()
        opened.put()
        assert not store.count_flushed()
        store.flush()
        assert store.count_flushed()
        opened.put()  # it counts again, before it is stored
        assert not store.count_flushed()

    def test_raw_bytes_make_an_equal_log(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        slave.become_slave()
        store.become_master(1)
        for _ in range(30):
            opened.put()
        copy_log(store, slave)
        assert log_of(slave) == log_of(store)
        assert slave.flush() == slave.log.flushed.value == store.log.wrote.value

    def test_reading_ends_at_the_end_of_a_file(self, opened: Opened) -> None:
        store = opened.store
        store.become_master(1)
        while store.log.wrote.value <= store.log.file_size:
            opened.put()
        size = store.log.file_size
        assert len(store.log.read(size - 10, 1000)) == 10
        assert len(store.log.read(0, 7)) == 7
        assert len(store.log.read(store.log.committed.value, 10)) == 0

    def test_bytes_that_do_not_follow_are_refused(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        store.become_master(1)
        for _ in range(3):
            opened.put()
        slave.append_raw(0, store.log.read(0, 100))
        with pytest.raises(StoreError):
            slave.append_raw(200, store.log.read(200, 50))
        assert slave.log.wrote.value == 100

    def test_what_is_confirmed_lies_in_the_log_and_does_not_go_back(self, opened: Opened) -> None:
        store = opened.store
        store.become_master(1)
        opened.put()
        end = store.log.wrote.value
        store.advance_confirmed(end // 2)
        assert store.confirmed.value == end // 2
        store.advance_confirmed(1)
        assert store.confirmed.value == end // 2
        store.advance_confirmed(end + 1000)
        assert store.confirmed.value == end

    def test_a_truncation_takes_log_epochs_and_confirm_offset_back(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        store.become_master(1)
        opened.put()
        middle = store.log.wrote.value
        store.become_master(2)
        opened.put()
        copy_log(store, slave)
        slave.epochs.append(EpochEntry(1, 0))
        slave.epochs.append(EpochEntry(2, middle))
        slave.flush()
        slave.advance_confirmed(store.log.wrote.value)
        slave.truncate(middle)
        log = slave.log
        assert log.wrote.value == log.committed.value == log.flushed.value == middle
        assert slave.epochs.table.entries == (EpochEntry(1, 0),)
        assert slave.confirmed.value == middle
        slave.append_raw(middle, store.log.read(middle, 1000))
        assert log_of(slave) == log_of(store)

    def test_a_truncation_may_cut_a_record(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        store.become_master(1)
        opened.put()
        opened.put()
        copy_log(store, slave)
        cut = store.log.wrote.value - 5
        slave.truncate(cut)
        slave.append_raw(cut, store.log.read(cut, 1000))
        assert log_of(slave) == log_of(store)

    def test_a_log_that_is_set_aside_begins_at_any_file(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        store.become_master(1)
        for _ in range(30):
            opened.put()
        copy_log(store, slave)
        slave.epochs.append(EpochEntry(1, 0))
        start = slave.log.file_size
        slave.reset(start)
        slave.epochs.replace(EpochTable())
        log = slave.log
        assert log.min_offset == log.wrote.value == log.flushed.value == start
        assert slave.confirmed.value == start
        slave.append_raw(start, store.log.read(start, 200))
        assert bytes(slave.log.read(start, 200)) == bytes(store.log.read(start, 200))

    def test_an_empty_log_takes_another_file_size(self, opened: Opened) -> None:
        slave = opened.another()
        size = slave.log.file_size * 2
        slave.adopt_commit_log_file_size(size)
        assert slave.log.file_size == size
        slave.append_raw(0, b"\0" * size)
        assert slave.log.wrote.value == size
        with pytest.raises(StoreError):
            slave.adopt_commit_log_file_size(size // 2)

    def test_tables_go_from_one_store_to_another(self, opened: Opened) -> None:
        store, slave = opened.store, opened.another()
        for mine, theirs in (
            (store.topics, slave.topics),
            (store.groups, slave.groups),
            (store.consumer_offsets, slave.consumer_offsets),
        ):
            theirs.replace_from_json(mine.to_json())
            assert theirs.to_json() == mine.to_json()
