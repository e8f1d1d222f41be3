"""Messages that were read become those of a consumer.

    read    41 42 43 44 45        new: rows for those that are there; 42 was left out by a filter
    leased  41 .. 43 .. 45        and is done, 44 waits behind an earlier message of its key

While the messages were read, some may have been acknowledged (by handles of an earlier master), so
each one is looked at again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.policy import Ordering

from .intervals import runs_of
from .queue_leases import ONE_KEY, QueueLeases
from .read_batch import ReadBatch
from .unacked import I64, Rows, State

U32 = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Grant:
    """One delivery: its number, when its messages come again, and when it is (since the epoch)."""

    lease: int
    visible_ms: int
    wall_ms: int


def lease_new(queue: QueueLeases, batch: ReadBatch, grant: Grant, owner: int) -> Rows:
    """The messages `batch.start`..`batch.end` are delivered for the first time. Returns which of
    those in the batch, by index, are leased now; the others are done, or wait for their turn."""
    queue.next = max(queue.next, batch.end)
    _end_left_out(queue, batch)
    offsets = batch.offsets
    left = (offsets >= queue.floor) & ~queue.ended.contains(offsets)
    if len(queue.rows):
        left &= ~queue.rows.find(offsets)[1]
    new = left.nonzero()[0]
    keys = _keys(queue, batch.keys[new])
    waits = _behind_others(queue, batch.end, keys)
    queue.rows.add(
        offsets[new],
        state=np.where(waits, State.READY, State.LEASED),
        lease=grant.lease,
        visible=grant.visible_ms,
        attempts=(~waits).astype(np.uint16),
        first_ms=np.where(waits, 0, grant.wall_ms),
        log_offset=batch.log_offsets[new],
        fingerprint=batch.fingerprints[new],
        owner=owner,
        key=keys,
        changed=~waits,
    )
    queue.owners.take(owner, len(new))
    queue.ready += int(waits.sum())
    queue.news.rows = True
    return new[~waits]


def _end_left_out(queue: QueueLeases, batch: ReadBatch) -> None:
    """What was looked at and is not in the batch: a filter has left it out, or it is deleted."""
    if len(batch.offsets) == batch.end - batch.start:
        return
    starts, ends = runs_of(batch.offsets)
    for gap, behind in zip(
        [batch.start, *ends.tolist()], [*starts.tolist(), batch.end], strict=True
    ):
        queue.pass_over(gap, behind)


def _keys(queue: QueueLeases, keys: U32) -> U32:
    whole = queue.policy.ordering is Ordering.QUEUE
    return np.full(len(keys), ONE_KEY, np.uint32) if whole else keys


def _behind_others(queue: QueueLeases, end: int, keys: U32) -> NDArray[np.bool_]:
    """Which messages have the key of one below `end` that is not done: an earlier one, or one that
    a consumer of an earlier master has turned out to have while these were read."""
    if queue.policy.ordering is Ordering.NONE or not queue.rows.live:
        return np.zeros(len(keys), np.bool_)
    earlier = slice(queue.rows.position(end))
    live = queue.rows.state[earlier] != State.GONE
    behind: NDArray[np.bool_] = (keys != 0) & np.isin(keys, queue.rows.key[earlier][live])
    return behind


def lease_again(queue: QueueLeases, wanted: I64, batch: ReadBatch, grant: Grant) -> Rows:
    """The messages `wanted`, of QueueLeases.choose_ready, are delivered again; those that are not
    in the batch are done. Returns which in the batch, by index, are leased now."""
    queue.end_offsets(np.setdiff1d(wanted, batch.offsets, assume_unique=True))
    table = queue.rows
    rows, found = table.find(batch.offsets)
    if len(table):
        found &= table.state[rows] == State.READY
    mine = found.nonzero()[0]
    rows = rows[mine]
    table.log_offset[rows], table.fingerprint[rows] = (
        batch.log_offsets[mine],
        batch.fingerprints[mine],
    )
    if queue.policy.ordering is Ordering.KEY:
        # of rows that the log told of, the key was not known
        table.key[rows] = batch.keys[mine]
        free = queue.free(batch.keys[mine])
        mine, rows = mine[free], rows[free]
    table.first_ms[rows] += (table.first_ms[rows] == 0) * grant.wall_ms
    table.lease[rows], table.visible[rows] = grant.lease, grant.visible_ms
    table.state[rows] = State.LEASED
    table.attempts[rows] = np.minimum(table.attempts[rows], 0xFFFE) + 1
    queue.change(rows)
    queue.ready -= len(rows)
    return mine


def with_another(queue: QueueLeases, leases: U32, keys: U32) -> NDArray[np.bool_]:
    """Which messages, of these deliveries and with these keys, come behind one that another
    delivery has now: their consumer has waited too long."""
    keys, table = _keys(queue, keys), queue.rows
    behind = np.zeros(len(keys), np.bool_)
    if queue.policy.ordering is not Ordering.NONE:
        leased = table.in_state(State.LEASED)
        for row in keys.nonzero()[0].tolist():
            same = table.key[leased] == keys[row]
            behind[row] = (same & (table.lease[leased] != leases[row])).any()
    return behind


def adopt(
    queue: QueueLeases,
    handles: NDArray[np.void],
    keys: U32,
    now_ms: int,
    wall_ms: int,
) -> None:
    """Consumers have the messages of `handles` HANDLE[n] by an earlier master: ascending, each
    once, and checked. They get rows whose lease ends now."""
    offsets = handles["queue_offset"].astype(np.int64)
    keys, table = _keys(queue, keys), queue.rows
    rows, found = table.find(offsets)
    new = ~found
    if len(table):
        found &= table.state[rows] < State.GIVEN_UP
    rows = rows[found]
    queue.leave_ready(rows)
    table.lease[rows] = handles["lease"][found]
    table.log_offset[rows] = handles["log_offset"][found]
    table.fingerprint[rows] = handles["fingerprint"][found]
    table.key[rows], table.visible[rows], table.state[rows] = keys[found], now_ms, State.LEASED
    table.attempts[rows] = np.maximum(table.attempts[rows], handles["attempt"][found])
    queue.change(rows)
    table.add(
        offsets[new],
        state=State.LEASED,
        lease=handles["lease"][new],
        visible=now_ms,
        attempts=handles["attempt"][new],
        first_ms=wall_ms,
        log_offset=handles["log_offset"][new],
        fingerprint=handles["fingerprint"][new],
        key=keys[new],
        changed=True,
    )
    queue.owners.take(0, int(new.sum()))
    queue.news.rows = True
