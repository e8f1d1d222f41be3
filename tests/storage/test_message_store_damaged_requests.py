"""A request of which one record's head is damaged, on a promoted node and on one that cuts."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.stores import CONFIG, Bench
from tandemlog.format.columns.walk import walk
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.config import ConfirmSource

REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION)
COUNT = 6


def mark(sequence: int) -> ProducerMark:
    return ProducerMark("p", 0, sequence, 0, COUNT)


def damaged(number: int, head: bytes, *, confirmed: bool, at: int = 0) -> tuple[Bench, list[int]]:
    """A promoted slave whose log has a plain record and a request, of which record `number` is
    damaged; where its records begin, and its end."""
    master = Bench(REPLICATED)
    master.store.become_master(1)
    master.put()
    master.put_marked(mark(0), COUNT)
    end = master.store.log.wrote.value
    data = bytearray(master.store.log.read(0, end))
    begins = [*walk(data).positions.astype(np.int64).tolist(), end]
    start, stop = begins[1 + number], begins[2 + number]
    data[start + at : start + at + len(head)] = head

    slave = Bench(REPLICATED, topics=())
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.epochs.append(EpochEntry(1, 0))
    intake = slave.store.raw_intake()
    slave.store.pass_over(start, stop)
    intake.take(0, bytes(data[:start]))
    intake.take(start, bytes(data[start:]), stop)
    slave.store.flush()
    if confirmed:
        slave.store.advance_confirmed(end)
        slave.store.reput.run_to()
    slave.store.become_master(2)
    return slave, begins


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("reopened", [False, True])
def test_it_is_complete(number: int, confirmed: bool, reopened: bool) -> None:
    slave, begins = damaged(number, b"\xee" * 8, confirmed=confirmed)
    if reopened:
        slave.store.advance_confirmed(begins[-1])
        slave.kill()
        slave.store.become_master(3)
    assert slave.put_marked(mark(0), COUNT).duplicate
    assert slave.store.log.wrote.value == begins[-1]
    assert not slave.put_marked(mark(1), COUNT).duplicate


LENGTHS = (84, 87)
"""Bytes of the length of a body."""


@pytest.mark.parametrize("at", LENGTHS)
@pytest.mark.parametrize("number", range(COUNT))
def test_one_of_which_a_length_is_damaged_is_complete(number: int, at: int) -> None:
    """Counted without that record its last one would be stored once more."""
    slave, begins = damaged(
        number, b"\x01" if at == LENGTHS[0] else b"\x04", at=at, confirmed=False
    )
    assert slave.store.queue_table.next_queue_offsets[0] == 1 + COUNT
    assert slave.put_marked(mark(0), COUNT).duplicate
    assert slave.store.log.wrote.value == begins[-1]
    assert not slave.put_marked(mark(1), COUNT).duplicate


@pytest.mark.parametrize("head", [b"\xee" * 8, b"\xee" * 60])
@pytest.mark.parametrize("kept", range(1, COUNT + 2))
@pytest.mark.parametrize("number", range(COUNT))
def test_the_log_can_be_cut_anywhere_behind_it(number: int, kept: int, head: bytes) -> None:
    slave, begins = damaged(number, head, confirmed=False)
    slave.store.become_slave()
    slave.store.truncate(begins[kept])
    assert slave.store.log.wrote.value == begins[kept]
