"""A truncation on a disk that fails in the middle of it: who is told, and what is left."""

import errno
from dataclasses import replace

import pytest

from fakes.crashed_stores import QUEUE, assert_whole
from fakes.stores import CONFIG, Bench
from storage.config import ConfirmSource
from storage.errors import FlushFailedError, StoreError
from storage.tools.verify import verify


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


@pytest.mark.parametrize("call", ["unlink", "truncate", "pread"])
def test_a_queue_that_cannot_be_cut_is_told_of_and_made_again(call: str) -> None:
    bench, cut = dispatched()
    before = bench.bodies(queue_id=1)
    bench.store.persist()
    bench.files.fail(call, errno.EIO, name=str(QUEUE), times=1)
    with pytest.raises(StoreError, match="consume queue T/0"):
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
