"""A queue with one message in each file of the log: what tells whether a number is right comes many
batches later."""

import errno

import pytest

from fakes.crashed_stores import log_byte
from fakes.stores import Bench, records_of
from tandemlog_server.storage.errors import StoreBusyError, StoreError
from tandemlog_server.storage.message_store import MessageStore

COUNT = 40
FILLER = 7600
"""Bytes of body that leave no room for another message of the queue in a file of the log."""
QUEUE_OFFSET = 20


def sparse() -> tuple[Bench, list[int]]:
    """A store, and where the messages of its queue lie."""
    bench, places = Bench(topics=("T", "other")), []
    for _ in range(COUNT):
        places.append(bench.put().segments[0].physical_offset)
        bench.put(topic="other", size=FILLER)
    bench.settle()
    return bench, places


def turn(bench: Bench, record: int, number: int, wrong: int) -> None:
    """One bit of the number that a record says it has."""
    path, at = log_byte(record + QUEUE_OFFSET + 7)
    assert bench.files.content(path)[at] == number
    bench.files.content(path)[at] = wrong


def numbers(store: MessageStore) -> list[int]:
    """The queue offsets of all that consumers see."""
    found: list[int] = []
    offset = 0
    while True:
        try:
            result = store.reader.get("T", 0, offset, 0, 4096)
        except StoreBusyError:
            store.reput.run_to()
            continue
        found += [record.queue_offset for record in records_of(result)]
        if not result.count and result.next_offset <= offset:
            return found
        offset = result.next_offset


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        (3, 3 | 32),  # one that the queue has too
        (0, 16),
        (6, 2),
        (37, 37 | 64),
        (COUNT - 1, (COUNT - 1) | 64),
    ],
)
@pytest.mark.parametrize("found_by", ["a reader", "a rebuild"])
def test_a_turned_bit_costs_its_own_message_alone(number: int, wrong: int, found_by: str) -> None:
    bench, places = sparse()
    turn(bench, places[number], number, wrong)
    if found_by == "a rebuild":
        bench.store.queues.mark_damaged(bench.store.queue_table.get("T", 0), "for a test")
        bench.settle()
    assert set(range(COUNT)) - set(numbers(bench.store)) <= {number}
    for _ in range(3):
        bench.put()
        bench.settle()
    seen = numbers(bench.store)
    assert set(range(COUNT)) - set(seen) == {number}
    assert len([each for each in seen if each >= COUNT]) >= 3


def test_a_hole_stays_a_hole() -> None:
    """Two damaged messages in a row, of which the log tells nothing: those behind them keep their
    numbers."""
    bench, places = sparse()
    for place in places[5:7]:
        for at in (4, 32):
            path, position = log_byte(place + at)
            bench.files.content(path)[position] ^= 0xFF
        path, position = log_byte(place + 84)
        bench.files.content(path)[position] ^= 0xFF
    bench.store.queues.mark_damaged(bench.store.queue_table.get("T", 0), "for a test")
    bench.settle()
    assert numbers(bench.store) == [each for each in range(COUNT) if each not in (5, 6)]


def test_a_full_disk_in_between_costs_nothing() -> None:
    bench, places = sparse()
    turn(bench, places[3], 3, 3 | 32)
    bench.store.queues.mark_damaged(bench.store.queue_table.get("T", 0), "for a test")
    refused = 0
    for step in range(3 * COUNT):
        bench.files.fail("pwrite", errno.ENOSPC, name="consumequeue/T", skip=step % 3)
        try:
            bench.store.reput.run_once()
        except StoreError:
            refused += 1
        bench.files.heal()
    assert refused >= 3
    bench.settle()
    assert numbers(bench.store) == [each for each in range(COUNT) if each != 3]
