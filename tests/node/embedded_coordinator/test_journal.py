"""Answers wait for the disk; after a failed commit there are none."""

import asyncio
import threading
from collections.abc import Sequence

from fakes.coordinator_machines import EMPTY, new_machine, put, txn
from tandemlog_server.node.embedded_coordinator.journal import Journal
from tandemlog_server.node.embedded_coordinator.state_machine import Changes, StateMachine


class SlowDisk:
    """Commits when it is let; or fails."""

    saved = EMPTY

    def __init__(self) -> None:
        self.let = threading.Semaphore(0)
        self.batches: list[int] = []
        self.broken = False

    def commit(self, changes: Sequence[Changes]) -> None:
        self.let.acquire()
        if self.broken:
            raise OSError("the disk is gone")
        self.batches.append(len(changes))

    def size(self) -> int:
        return 0

    def close(self) -> None: ...


def changed(machine: StateMachine) -> Changes:
    machine.txn(txn(put(b"a")), 0.0)
    return machine.pop_changes()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_answers_wait_for_what_they_saw_and_commits_gather() -> None:
    disk, machine = SlowDisk(), new_machine()
    told: list[int] = []
    journal = Journal(disk, told.append)
    await journal.durable()  # nothing was added
    journal.add(changed(machine))
    first = asyncio.create_task(journal.durable())
    await settled()
    reader = asyncio.create_task(journal.durable())  # saw the first, which is not yet durable
    await settled()
    journal.add(Changes())  # a read adds nothing
    for _ in range(3):
        journal.add(changed(machine))
    later = asyncio.create_task(journal.durable())
    await settled()
    assert not any(each.done() for each in (first, reader, later))
    assert told == []
    assert journal.waiting_bytes == 4 * len(b"av")
    disk.let.release()
    await first
    await reader
    assert told == [2]
    assert not later.done()
    disk.let.release()
    await later
    assert told == [2, 5]
    assert disk.batches == [1, 3]
    assert journal.waiting_bytes == 0
    await journal.close()


async def test_nothing_is_answered_after_a_failed_commit() -> None:
    disk, machine = SlowDisk(), new_machine()
    told: list[int] = []
    journal = Journal(disk, told.append)
    journal.add(changed(machine))
    waiting = asyncio.create_task(journal.durable())
    await settled()
    disk.broken = True
    disk.let.release()
    error = await journal.fatal
    assert isinstance(error, OSError)
    late = asyncio.create_task(journal.durable())
    await settled()
    assert not waiting.done()
    assert not late.done()
    assert told == []
    waiting.cancel()
    late.cancel()
    await journal.close()


async def test_closing_makes_durable_what_was_added() -> None:
    disk, machine = SlowDisk(), new_machine()
    disk.let.release()
    journal = Journal(disk, lambda _: None)
    journal.add(changed(machine))
    await journal.close()
    assert disk.batches == [1]


async def test_closing_ends_although_the_last_commit_fails() -> None:
    disk, machine = SlowDisk(), new_machine()
    journal = Journal(disk, lambda _: None)
    journal.add(changed(machine))
    closing = asyncio.create_task(journal.close())
    await settled()
    disk.broken = True
    disk.let.release()
    async with asyncio.timeout(10):
        await closing
    assert isinstance(journal.fatal.result(), OSError)
