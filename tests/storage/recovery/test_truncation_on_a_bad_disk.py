"""A truncation on a disk that fails in the middle of it: who is told, and what is left."""

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest

from fakes.crashed_stores import QUEUE, assert_whole
from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import (
    DiskFullError,
    FlushFailedError,
    StoreError,
    StoreReadOnlyError,
)
from tandemlog_server.storage.tools.verify import verify

ENDS: dict[str, Callable[[Bench], object]] = {
    "nothing": lambda bench: None,
    "killed": lambda bench: bench.kill(),
    "power cut": lambda bench: bench.crash(),
}


def dispatched() -> tuple[Bench, int]:
    """A replica that has dispatched all it has, and a place in its log that a queue has files on
    both sides of."""
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    for number in range(6):
        bench.put(3, queue_id=number % 2)
    cut = bench.put(2).segments[0].physical_offset
    bench.put(30)
    bench.store.flush()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    bench.store.become_slave()
    return bench, cut


def test_a_failed_fsync_of_the_index_ends_the_writing() -> None:
    """A second one that succeeds would let index.json vouch for what only the page cache has."""
    bench, cut = dispatched()
    bench.files.fail("fdatasync", errno.EIO, name="index", times=1)
    with pytest.raises(FlushFailedError):
        bench.store.truncate(cut)
    assert isinstance(bench.store.failure, FlushFailedError)
    bench.files.heal()
    with pytest.raises(FlushFailedError):
        bench.store.truncate(cut)
    bench.store.close()
    bench.crash()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.close()
    assert [str(each) for each in verify(bench.config, bench.files).faults] == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("unlink", pytest.raises(StoreError, match="consume queue T/0")),
        ("truncate", pytest.raises(StoreError, match="consume queue T/0")),
        ("pread", nullcontext()),  # what it still holds is of no interest any more
    ],
)
def test_a_queue_that_cannot_be_cut_is_made_again(
    call: str, told: AbstractContextManager[object]
) -> None:
    bench, cut = dispatched()
    before = bench.bodies(queue_id=1)
    bench.store.persist()
    bench.files.fail(call, errno.EIO, name=str(QUEUE), times=1)
    with told:
        bench.store.truncate(cut)
    store = bench.store
    assert store.failure is None
    assert list(store.queues.damaged) == [store.queue_table.get("T", 0)]
    assert store.queues.next_offset == cut
    store.truncate(cut)
    store.become_master(2)
    store.reput.run_to()
    assert store.queues.damaged == {}
    assert len(bench.bodies()) == 9
    assert bench.bodies(queue_id=1) == before
    store.advance_confirmed(bench.put(3).end_offset)
    assert_whole(bench)


def assert_cut_at(bench: Bench, cut: int) -> None:
    """The store goes on behind `cut`, and is whole."""
    store = bench.store
    assert store.recovery.damages == []
    store.truncate(cut)
    assert store.log.wrote.value == cut
    store.become_master(3)
    assert store.consumer_offsets.offset("G", "T", 0) == 9
    store.advance_confirmed(bench.put(3).end_offset)
    store.reput.run_to()
    assert len(bench.bodies()) == 12
    assert store.epochs.table.entries == (EpochEntry(1, 0), EpochEntry(3, cut))
    store.advance_confirmed(bench.put(3).end_offset)
    assert_whole(bench)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("atomic_replace", "tandemlog/producers"),
        ("atomic_replace", "recovery.json"),
        ("pwrite", "store/checkpoint"),
        ("atomic_replace", "consumerOffset.json"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_and_the_cut_may_be_repeated(
    call: str, name: str, end: str
) -> None:
    bench, cut = dispatched()
    bench.store.epochs.append(EpochEntry(2, cut))
    bench.store.consumer_offsets.commit("G", "T", 0, 30)
    bench.store.consumer_offsets.save(1)
    bench.files.fail(call, errno.ENOSPC, name=name)
    with pytest.raises(DiskFullError, match=rf"cut at {cut}.*{name}.*free some space"):
        bench.store.truncate(cut)
    assert bench.store.failure is None
    bench.files.heal()
    ENDS[end](bench)
    assert_cut_at(bench, cut)


@pytest.mark.parametrize("end", ["killed", "power cut"])
def test_epochs_that_cannot_be_cut_end_the_writing(end: str) -> None:
    """What came next would be taken for bytes of a term that is gone."""
    bench, cut = dispatched()
    bench.store.epochs.append(EpochEntry(2, cut))
    bench.store.consumer_offsets.commit("G", "T", 0, 30)
    bench.store.consumer_offsets.save(1)
    bench.files.fail("atomic_replace", name="epochFileCheckpoint")
    match = rf"cut at {cut}.*epochFileCheckpoint.*restart"
    with pytest.raises(StoreReadOnlyError, match=match):
        bench.store.truncate(cut)
    with pytest.raises(StoreReadOnlyError):
        bench.store.append_raw(cut, b"x")
    bench.files.heal()
    ENDS[end](bench)
    assert_cut_at(bench, cut)


@pytest.mark.parametrize(("call", "name"), [("pread", "/index/"), ("open", "/index/")])
def test_an_index_that_cannot_be_cut_is_named(call: str, name: str) -> None:
    bench, cut = dispatched()
    assert bench.store.index is not None
    bench.store.index.close()
    bench.files.fail(call, errno.EIO, name=name, times=1)
    with pytest.raises(StoreError, match="index"):
        bench.store.truncate(cut)
    bench.store.truncate(cut)
    bench.store.become_master(2)
    bench.store.advance_confirmed(bench.put(3).end_offset)
    assert_whole(bench)


@pytest.mark.parametrize("call", ["close", "unlink", "open", "preallocate", "pread", "pwrite"])
def test_a_cut_of_the_index_that_breaks_off_and_is_not_repeated_loses_no_entry(call: str) -> None:
    """The slave may hear of another master, whose log is as this one was."""
    skip, broken_off = 0, True
    while broken_off:
        bench, cut = dispatched()
        bench.store.persist()
        bench.files.fail(call, errno.EIO, name="/index/", times=1, skip=skip)
        try:
            bench.store.truncate(cut)
            broken_off = False
        except StoreError:
            assert bench.store.log.wrote.value > cut
        bench.files.heal()
        bench.store.become_master(2)
        bench.store.advance_confirmed(bench.put(3).end_offset)
        assert_whole(bench)
        skip += 1
    assert skip > 1
