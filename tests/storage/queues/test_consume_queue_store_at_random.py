"""Consume queues against plain lists, across flushes, truncations and crashes."""

import random
import threading

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakes.queue_stores import SIZE, Store
from tandemlog.format.files.queue_unit import UNIT_DTYPE
from tandemlog_server.storage.queues.queue_checkpoint import QueueCheckpoint


def test_reads_beside_dispatch_and_truncation_see_whole_units() -> None:
    store = Store(units_a_file=40)
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        dice = random.Random(1)
        while not ended.is_set():
            queue = dice.randrange(4)
            first = max(store.queues.max_offset(queue) - dice.randrange(40), 0)
            found = store.queues.read(queue, first, 50)
            expected = 1000 * (first + np.arange(len(found))) + queue
            if found["physical_offset"].tolist() != expected.tolist():
                wrong.append((queue, first, found))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    dice = random.Random(2)
    for round_number in range(150):
        queue, count = dice.randrange(4), dice.randrange(1, 30)
        offsets = int(store.queues.ends()[queue]) + np.arange(count)
        units = np.zeros(count, dtype=UNIT_DTYPE)
        units["physical_offset"] = 1000 * offsets + queue
        units["size"] = 1
        store.queues.append(np.full(count, queue), offsets, units, 0)
        if round_number % 10 == 9:
            store.queues.truncate(1000 * (int(store.queues.ends().min()) // 2))
            store.queues.flush()
    ended.set()
    for each in readers:
        each.join()
    assert not wrong


class QueuesAgainstLists(RuleBasedStateMachine):
    """Whatever happens, every queue holds what the records say, on disk after a crash too."""

    @initialize()
    def begin(self) -> None:
        # three spills of a row to a file: a crash may keep a later one and lose an earlier
        self.store = Store(units_a_file=40)
        self.checkpoint = QueueCheckpoint(0)
        self.dispatched = 0

    @rule(queues=st.lists(st.integers(0, 3), max_size=25))
    def append(self, queues: list[int]) -> None:
        self.store.add(*queues)

    @rule(queue=st.integers(0, 3), count=st.integers(0, 60))
    def append_run(self, queue: int, count: int) -> None:
        self.store.add(*[queue] * count)

    @rule(count=st.integers(1, 50), back=st.integers(0, 8))
    def dispatch(self, count: int, back: int) -> None:
        first = max(self.dispatched - back, 0)
        last = min(first + back + count, len(self.store.records))
        if last > first:
            self.store.dispatch(first, last)
            self.dispatched = max(last, self.dispatched)

    @rule()
    def flush(self) -> None:
        self.checkpoint = self.store.queues.flush()
        assert self.checkpoint.log_offset == SIZE * self.dispatched
        for queue in range(4):
            content = np.frombuffer(self.store.content(queue), dtype=UNIT_DTYPE)
            expected = self.expected(queue)
            assert content["physical_offset"][: len(expected)].tolist() == expected
            assert not any(content[len(expected) :].tobytes())

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        keep = round(share * len(self.store.records))
        del self.store.records[keep:]
        self.store.queues.truncate(self.store.end)
        self.dispatched = min(self.dispatched, keep)
        self.flush()

    @rule(seed=st.integers(0, 999), survive=st.booleans())
    def lose_power(self, seed: int, survive: bool) -> None:
        self.store.files.crash(random.Random(seed) if survive else None)
        self.reopen(clean=False)

    @rule()
    def kill(self) -> None:
        self.store.files.kill()
        self.reopen(clean=False)

    @rule()
    def close(self) -> None:
        self.flush()
        self.store.queues.close()
        self.reopen(clean=True)

    @rule(share=st.floats(0, 1))
    def lose_power_and_the_log_beyond(self, share: float) -> None:
        self.store.files.crash()
        del self.store.records[round(share * len(self.store.records)) :]
        self.reopen(clean=False)

    def reopen(self, *, clean: bool) -> None:
        findings = self.store.load(self.checkpoint, clean=clean)
        assert not findings.damaged
        self.dispatched = self.store.queues.next_offset // SIZE
        self.flush()

    def expected(self, queue: int) -> list[int]:
        rows = enumerate(self.store.records[: self.dispatched])
        return [SIZE * row for row, (each, _) in rows if each == queue]

    @invariant()
    def queues_hold_what_was_dispatched(self) -> None:
        if not hasattr(self, "store"):
            return
        store = self.store
        assert not store.queues.damaged
        for queue in range(4):
            expected = self.expected(queue)
            assert store.held(queue) == expected
            middle = len(expected) // 2
            found = store.queues.read(queue, middle, 7)["physical_offset"].tolist()
            assert found == expected[middle : middle + 7]


TestQueuesAgainstLists = QueuesAgainstLists.TestCase


TestQueuesAgainstLists.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
