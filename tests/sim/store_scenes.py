"""Scenes of one store that chance plays too seldom, played on purpose: what is noted on the disk.

Every scene breaks a promise where the rule that it is about is switched off (store_mutations.py),
and says so where it was not played at all.
"""

import errno
from dataclasses import replace

from sim.ha_nodes import ViolationError
from sim.store_nodes import CONFIG
from sim.store_requests import Request
from sim.store_stage import Stage, staged
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.folds.snapshot_form import snapshot_offset

NO_FSYNC = replace(CONFIG, flush=FlushMode.ASYNC)
REFUSED = errno.ENOSPC


@staged
def notes_of_a_lost_tail(seed: int) -> Stage:
    """Dispatch was ahead of the fsync when the power went. The open after that cannot write the
    recovery point anew, or (odd seeds) is one without an index, and the log comes to the same
    position with other records."""
    world = Stage(seed, 1, NO_FSYNC)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T0", 0, count=3)
    world.stored(second, "T1", 0)
    node.store.flush()
    flushed = node.store.log.flushed.value
    world.deaf = True
    world.messages(first, "T0", 0, 6)
    for _ in range(3):
        world.calm(flush=False)
    point = world.checkpoint_on(node)
    ahead = point.dispatched > point.flushed == flushed
    world.stop(node)
    without_index = seed % 2 == 1
    if without_index:
        world.settings = replace(NO_FSYNC, index_enabled=False)
    else:
        node.files.fail("atomic_replace", REFUSED, name="tandemlog/recovery.json", times=1)
    world.again(node, power=True)
    world.settings, world.deaf = NO_FSYNC, False
    lost = node.store.log.wrote.value == flushed
    refused = without_index or bool(node.store.recovery.waits)
    first.restart(node.store)
    world.stored(second, "T1", 0, count=6)
    beyond = node.store.log.wrote.value == point.dispatched
    world.stored(second, "T0", 1)
    node.store.flush()
    world.again(node)
    return world.played(ahead, lost, refused, beyond)


@staged
def a_request_of_the_lost_tail(seed: int) -> Stage:
    """A request is written and not fsynced when the producers are noted and the power goes. The
    open after that cannot note them anew; the log grows beyond, and the client sends again."""
    world = Stage(seed, 1)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T0", 0, count=3)
    world.stored(second, "T1", 0)
    request = world.messages(first, "T0", 0, 2)
    with world.on(node):
        world.send(first, request)
    end = node.store.log.wrote.value
    for _ in range(2):
        world.checkpoint_on(node)
    ahead = node.store.log.flushed.value < end
    world.stop(node)
    node.files.fail("atomic_replace", REFUSED, name="tandemlog/producers", times=1)
    world.producers.remove(first)
    world.again(node, power=True)
    lost = node.store.log.wrote.value < end and bool(node.store.recovery.waits)
    while node.store.log.wrote.value <= end:
        world.stored(second, "T1", 0)
    world.again(node)
    world.producers.append(first)
    waits = not request.acknowledged
    world.answered()
    return world.played(ahead, lost, waits, request.acknowledged)


@staged
def a_queue_that_is_not_noted(seed: int) -> Stage:
    """Old records of an idle queue are dispatched, and the recovery point that would say so cannot
    be written: retention comes, and the process dies."""
    world = Stage(seed, 1)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T1", 1, requests=5)
    end = world.last_of("T1", 1)
    world.fill(second, "T0", 0, 3)
    node.files.fail("atomic_replace", REFUSED, name="tandemlog/recovery.json", times=1)
    world.checkpoint_on(node)
    noted = snapshot_offset(node.files.peek(world.paths.producers) or b"") >= end
    behind = world.point(node).dispatched < end
    world.wait_out()
    world.retain(node)
    world.again(node)
    return world.played(noted, behind)


@staged
def producers_that_are_not_noted(seed: int) -> Stage:
    """Old requests of a producer are in no note of the producers: what was taken of them waits for
    the flush. Retention comes, and the process dies."""
    world = Stage(seed, 1)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T1", 1, requests=5)
    end = world.last_of("T1", 1)
    world.fill(second, "T0", 0, 3)
    request = world.messages(second, "T0", 0, 1)
    with world.on(node):
        world.send(second, request)
    covered = world.checkpoint_on(node).dispatched >= end
    behind = snapshot_offset(node.files.peek(world.paths.producers) or b"") < end
    world.wait_out()
    world.retain(node)
    world.again(node)
    return world.played(covered, behind)


@staged
def no_producers_are_noted(seed: int) -> Stage:
    """The note of the producers is damaged, and the open that makes the table again from the log
    cannot write it. Retention comes, and the process dies."""
    world = Stage(seed, 1)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T1", 1, requests=5)
    world.fill(second, "T0", 0, 3)
    world.checkpoint_on(node)
    world.stop(node)
    path = world.paths.producers
    node.files.flip(path, world.rng.randrange(len(node.files.peek(path) or b"")), 1)
    node.files.fail("atomic_replace", REFUSED, name="tandemlog/producers", times=1)
    world.up(node)
    waits = bool(node.store.recovery.waits)
    damaged = any("producers is damaged" in note for note in node.store.recovery.notes)
    world.wait_out()
    world.retain(node)
    world.again(node)
    return world.played(waits, damaged)


@staged
def a_file_of_an_idle_queue_is_gone(seed: int) -> Stage:
    """All records of a queue expire, and retention finds one of its files missing. The process
    dies when that is noted (odd seeds), or after the queue was made again."""
    world = Stage(seed, 1)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T1", 1, requests=5, count=5)
    end = world.last_of("T1", 1)
    world.fill(second, "T0", 0, 3)
    world.checkpoint_on(node)
    world.again(node)
    folder = world.paths.queues / "T1" / "1"
    names = node.files.names(folder)
    node.files.unlink(folder / names[0])
    world.checkpoint_on(node)
    world.wait_out()
    world.retain(node)
    dense = node.store.queue_table.get("T1", 1)
    expired, damaged = node.log_begin >= end, dense in node.store.queues.damaged
    while not seed % 2 and dense in node.store.queues.damaged:
        world.dispatch_on(node)
    noted = world.checkpoint_on(node).queues.get("T1", {}).get(1)
    world.again(node)
    return world.played(len(names) > 1, expired, damaged, (noted == -1) == bool(seed % 2))


@staged
def another_request_of_that_number(seed: int) -> Stage:
    """Two processes under one name: the second one's request has a number that the first one's has
    taken. The table of producers is that of the put, of the log, or of the disk."""
    world = Stage(seed, 1 + seed % 2)
    node, (first, second) = world.master, world.producers
    world.stored(first, "T0", 0, count=2)
    (known,) = first.done
    if seed % 3 == 1:
        world.again(node)
    elif seed % 3 == 2:
        world.close(node)
        world.up(node)
    world.stored(second, "T0", 1)
    (put, *_) = world.messages(second, "T1", 0, 1).puts
    second.chain.clear()
    second.following -= 1
    other = Request(first.name, first.epoch, 0, [put, replace(put, queue_id=1)], known.batch)
    other.number(known.epoch, known.sequence)
    refused = ""
    try:
        result = node.store.put(other.batch)
        world.ledger.acknowledge(other, result, node.store)
    except BatchRefusedError as fault:
        refused = fault.code
    if refused != "SEQUENCE_CONFLICT":
        raise ViolationError(f"another request of a number that is taken: {refused or 'answered'}")
    return world.played(known.acknowledged, (other.epoch, other.sequence) == (0, 0))
