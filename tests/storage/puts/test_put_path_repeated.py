"""A request that comes again is stored once, over restarts too."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fakes.batches import batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench, marked
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.housekeeping import forget_producers
from tandemlog_server.storage.message_store import MessageStore

MARK = ProducerMark("p1", 0, 0, 0, 3)


def test_a_repeated_request_is_stored_once() -> None:
    bench = Bench()
    first = bench.put_marked(MARK, 3)
    again = bench.put_marked(MARK, 3)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.end_offset == first.end_offset
    assert again.store_timestamp == first.store_timestamp
    assert [
        (each.first_index, each.count, each.physical_offset, each.queue_offsets.tolist())
        for each in again.segments
    ] == [(0, 3, 0, [0])]
    bench.settle()
    assert len(bench.bodies()) == 3
    assert bench.store.stats.put_duplicates == 3


@pytest.mark.parametrize("restart", [Bench.reopen, Bench.kill])
def test_a_restart_does_not_forget(restart: Callable[[Bench], MessageStore]) -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    restart(bench)
    assert bench.put_marked(MARK, 3).duplicate
    following = replace(MARK, sequence=1)
    assert not bench.put_marked(following, 3).duplicate
    bench.settle()
    assert len(bench.bodies()) == 6


def test_a_request_over_two_files_is_answered_the_same() -> None:
    bench = Bench()
    mark = ProducerMark("p1", 0, 0, 0, 100)
    first = bench.put_marked(mark, 100)
    assert len(first.segments) > 1
    again = bench.put_marked(mark, 100)
    for one, two in zip(first.segments, again.segments, strict=True):
        assert (one.first_index, one.count, one.physical_offset) == (
            two.first_index,
            two.count,
            two.physical_offset,
        )
        assert np.array_equal(one.queue_offsets, two.queue_offsets)


def test_dispatch_may_be_quicker_than_the_end_of_a_put() -> None:
    """It sees the records of the first file while the put does not know yet where its own are."""
    bench = Bench()
    dispatching: list[threading.Thread] = []

    def overtake() -> None:
        thread = threading.Thread(target=bench.store.reput.run_once)
        thread.start()
        thread.join(0.5)  # it may have to wait for the put, which is here
        dispatching.append(thread)

    stop = bench.store.confirmed.listen(overtake)
    mark = ProducerMark("p1", 0, 0, 0, 100)
    assert len(bench.put_marked(mark, 100).segments) > 1
    stop()
    for thread in dispatching:
        thread.join()
    bench.settle()
    assert dispatching
    assert bench.put_marked(mark, 100).duplicate


def test_gaps_and_old_epochs_are_refused_with_both_numbers() -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    with pytest.raises(BatchRefusedError) as gap:
        bench.put_marked(replace(MARK, sequence=5), 3)
    assert (gap.value.code, gap.value.limit, gap.value.actual) == ("SEQUENCE_GAP", 1, 5)
    bench.put_marked(replace(MARK, epoch=2), 3)
    with pytest.raises(BatchRefusedError) as fenced:
        bench.put_marked(replace(MARK, sequence=1), 3)
    assert fenced.value.code == "PRODUCER_FENCED"
    with pytest.raises(BatchRefusedError) as conflict:
        bench.put_marked(replace(MARK, epoch=2, count=2), 2)
    assert conflict.value.code == "SEQUENCE_CONFLICT"


@pytest.mark.parametrize("restart", [Bench.settle, Bench.reopen, Bench.kill])
def test_other_records_under_a_stored_number_are_refused(
    restart: Callable[[Bench], object],
) -> None:
    """They would be answered as stored and be nowhere."""
    bench = Bench()
    bench.put_marked(replace(MARK, checksum=7), 3)
    restart(bench)
    with pytest.raises(BatchRefusedError, match="checksum") as conflict:
        bench.put_marked(replace(MARK, checksum=8), 3)
    assert conflict.value.code == "SEQUENCE_CONFLICT"
    assert bench.put_marked(replace(MARK, checksum=7), 3).duplicate


@pytest.mark.parametrize(("stored", "sent"), [(None, 7), (7, None)])
def test_a_mark_without_a_checksum_says_nothing(stored: int | None, sent: int | None) -> None:
    """Logs of before have such marks, and whoever goes on with them may have newer ones."""
    bench = Bench()
    bench.put_marked(replace(MARK, checksum=stored), 3)
    assert bench.put_marked(replace(MARK, checksum=sent), 3).duplicate


def test_a_torn_request_is_completed_by_its_retry() -> None:
    bench = Bench()
    bench.put(1)
    bench.put_marked(MARK, 3)
    bench.store.flush()
    # the last of the three records is lost
    last = bench.store.log.wrote.value - int(batch_of(marked(MARK, 3)).sizes[2])
    bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}")[last : last + 200] = bytes(200)
    bench.kill()
    assert bench.store.log.wrote.value == last
    bench.put(1)  # a stranger in between
    answer = bench.put_marked(MARK, 3)
    assert not answer.duplicate
    assert [each.count for each in answer.segments] == [2, 1]
    assert bench.put_marked(MARK, 3).duplicate
    bench.settle()
    bodies = bench.bodies()
    assert [body for body in bodies if body.startswith(b"p1")] == [b"p1-0-0", b"p1-0-1", b"p1-0-2"]
    bench.kill()
    assert bench.put_marked(MARK, 3).duplicate


def test_producers_are_forgotten_after_their_time() -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    bench.clock.advance(CONFIG.producer_retention_ms / 1000 + 1)
    bench.put(1)  # the log goes on, and only its own time counts
    bench.settle()
    forget_producers(bench.store._parts)
    with pytest.raises(BatchRefusedError) as refused:
        bench.put_marked(replace(MARK, sequence=1), 3)
    assert refused.value.code == "UNKNOWN_PRODUCER"
