"""A message whose record is damaged, and mended later, is not done for a work group meanwhile."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fakes.scrubbed_trio import StorePeer, files_of, turn
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.lease.policy import GroupPolicy
from tandemlog_server.storage.errors import StoreBusyError, UnreadableError
from tandemlog_server.storage.leases.lease_values import Reading
from tandemlog_server.storage.leases.queue_leases import QueueLeases
from tandemlog_server.storage.leases.row_owners import RowOwners
from tandemlog_server.storage.scrub.log_mending import Patch
from tandemlog_server.storage.scrub.scrubber import Scrubber
from tandemlog_server.storage.services.damaged_numbers import PATIENCE_S
from tandemlog_server.storage.services.dead_letters import DeadLetterDesk
from tandemlog_server.storage.services.lease_desk import LeaseDesk

FILE = CONFIG.commit_log_file_size * 8
LOG = DIRECTORY / "commitlog" / f"{0:020d}"
COUNT = 5


class Scene:
    """Messages 0..4 of a queue; the record of `number` is flipped, and its queue rebuilt."""

    def __init__(self, number: int) -> None:
        self.bench = bench = Bench(replace(CONFIG, commit_log_file_size=FILE, property_crc=True))
        begins = []
        for _ in range(COUNT):
            begins.append(bench.store.log.wrote.value)
            bench.put()
            bench.put(queue_id=1)
        bench.settle()
        begins.append(bench.store.log.wrote.value)
        size = int.from_bytes(bench.store.log.view(begins[number], 4))
        begin, end = begins[number], begins[number] + size
        self.whole = {LOG: bench.files.read_file(LOG)}
        self.patch = Patch(begin, bytes(bench.store.log.view(begin, end - begin)))
        turn(bench.files, LOG, begin + size // 2, 1)
        with pytest.raises(StoreBusyError):
            bench.store.reader.get("T", 0, number, 1, 1 << 16)
        bench.settle()
        assert bench.store.damages
        self.desk = LeaseDesk(bench.store)
        self.letters = DeadLetterDesk(bench.store)

    def mend(self) -> None:
        self.bench.store.mend([self.patch])
        self.bench.settle()

    def reading(self, start: int, end: int, again: tuple[int, ...] = ()) -> Reading:
        queue = QueueLeases("g", "T", 0, GroupPolicy(), RowOwners(100))
        return Reading(queue, np.array(again, np.int64), start, end, "me")

    def read(self, start: int, end: int, again: tuple[int, ...] = ()) -> list[int]:
        batch = self.desk.read(self.reading(start, end, again), 1 << 16)
        assert batch is not None
        return [*batch.offsets.tolist(), batch.end]

    def bury(self, number: int) -> list[int]:
        letters: Any = SimpleNamespace(
            queue=SimpleNamespace(group="g", topic="T", queue_id=0),
            offsets=np.array([number]), attempts=[1], errors=[""], first_ms=[1],
        )  # fmt: skip
        return list(self.letters.bury(letters))


def test_a_read_ends_before_the_number_and_does_not_pass_it() -> None:
    scene = Scene(2)
    assert scene.read(0, COUNT) == [0, 1, 2]
    with pytest.raises(UnreadableError, match=r"the record of message 2 of T/0 is damaged"):
        scene.read(2, COUNT)
    assert scene.read(3, COUNT) == [3, 4, COUNT]
    scene.mend()
    assert scene.read(2, COUNT) == [2, 3, 4, COUNT]


def test_what_is_delivered_again_waits_too() -> None:
    scene = Scene(2)
    assert scene.read(0, COUNT, (1, 2, 4)) == [1, 2]
    with pytest.raises(UnreadableError):
        scene.read(0, COUNT, (2, 4))
    scene.mend()
    assert scene.read(0, COUNT, (2, 4)) == [2, 4, COUNT]


def test_the_first_messages_of_a_queue_are_not_gone() -> None:
    scene = Scene(0)
    assert scene.desk.range("T", 0) == (0, COUNT)
    with pytest.raises(UnreadableError):
        scene.read(0, COUNT)
    scene.mend()
    assert scene.desk.range("T", 0) == (0, COUNT)
    assert scene.read(0, COUNT) == [0, 1, 2, 3, 4, COUNT]


def test_a_process_that_starts_later_finds_the_damage_in_the_log() -> None:
    scene = Scene(2)
    scene.bench.store.persist()
    scene.bench.reopen()
    assert not scene.bench.store.damages
    scene.desk = LeaseDesk(scene.bench.store)
    with pytest.raises(UnreadableError):
        scene.read(2, COUNT)
    assert len(scene.bench.store.damages) == 1
    scene.mend()
    assert scene.read(2, COUNT) == [2, 3, 4, COUNT]


def test_nobody_waits_for_ever() -> None:
    scene = Scene(2)
    for _ in range(2):
        with pytest.raises(UnreadableError):
            scene.read(2, COUNT)
        scene.bench.clock.advance(PATIENCE_S / 2 - 1)
    scene.bench.clock.advance(2)
    assert scene.read(2, COUNT) == [3, 4, COUNT]


def test_a_dead_letter_waits_for_its_message() -> None:
    scene = Scene(2)
    assert scene.bury(2) == []
    scene.mend()
    assert scene.bury(2) == [2]
    scene.bench.settle()
    assert scene.bench.bodies("%DLQ%g") == [scene.bench.bodies()[2]]


def test_no_dead_letter_is_made_of_the_next_message() -> None:
    scene = Scene(2)
    assert scene.bury(2) == []
    scene.bench.clock.advance(PATIENCE_S + 1)
    assert scene.bury(2) == [2]
    scene.bench.settle()
    assert scene.bench.bodies("%DLQ%g") == []


def test_the_scrub_looks_at_damage_first() -> None:
    scene = Scene(2)
    store = scene.bench.store
    other = Bench(scene.bench.config, files_of(scene.whole))
    other.settle()
    scrubber = Scrubber(
        store, lambda: [StorePeer("other", other.store)], store.directory / "tandemlog/scrub.json",
        bytes_per_s=1 << 30, interval_ms=1 << 40,
    )  # fmt: skip
    scrubber.plan.passed(store.log.wrote.value)  # its round has gone by
    scrubber.step()
    assert scrubber.counts.mended == 1
    assert scrubber.plan.next_first(0, store.log.wrote.value) is None
