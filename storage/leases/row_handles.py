"""The handles of messages that a queue has delivered: made with the delivery, or once more later.

    delivery ─▶ Leased: the messages, attempts, first delivery, handles, last errors
    offset and number of the delivery, from a client that has no handle ─▶ the handle, if this
    master has made that delivery and it is the message's last one

The number is compared by its low bits, as many as the client could carry.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.handle import HANDLE, encode_handles

from .lease_values import Leased
from .open_groups import OpenGroup
from .queue_leases import QueueLeases
from .read_batch import ReadBatch
from .unacked import NO_LEASE, NOT_KNOWN, Rows


def leased_rows(
    group: OpenGroup, queue: QueueLeases, batch: ReadBatch, lease: int, term: int
) -> Leased:
    """The messages of `batch`, which has live rows, as the delivery `lease`."""
    rows, _ = queue.rows.find(batch.offsets)
    handles = _handles(group, queue, rows, term)
    handles["lease"] = lease
    handles["log_offset"], handles["fingerprint"] = batch.log_offsets, batch.fingerprints
    errors = {}
    if queue.errors:
        errors = {
            row: queue.errors[offset]
            for row, offset in enumerate(batch.offsets.tolist())
            if offset in queue.errors
        }
    attempts, first_ms = queue.rows.attempts[rows], queue.rows.first_ms[rows]
    return Leased(queue, batch, attempts, first_ms, encode_handles(handles), errors)


def handles_again(
    group: OpenGroup,
    queue: QueueLeases,
    offsets: Sequence[int],
    delivery: int,
    mask: int,
    term: int,
) -> list[bytes]:
    """For each of the offsets the handle of the delivery whose number has these bits under `mask`;
    empty where that is not the last delivery of a message that is not done."""
    found_handles = [b""] * len(offsets)
    rows, found = queue.rows.find(np.array(offsets, np.int64))
    if not found.any():
        return found_handles
    leases = queue.rows.lease[rows[found]]
    mine = (leases & np.uint32(mask)) == delivery
    mine &= (leases != NO_LEASE) & (queue.rows.log_offset[rows[found]] != NOT_KNOWN)
    places = found.nonzero()[0][mine].tolist()
    text = encode_handles(_handles(group, queue, rows[found][mine], term))
    size = len(text) // max(len(places), 1)
    for number, place in enumerate(places):
        found_handles[place] = text[number * size : (number + 1) * size]
    return found_handles


def _handles(group: OpenGroup, queue: QueueLeases, rows: Rows, term: int) -> NDArray[np.void]:
    table = queue.rows
    handles = np.zeros(len(rows), HANDLE)
    handles["version"] = 1
    handles["attempt"], handles["queue_id"] = table.attempts[rows], queue.queue_id
    handles["group"], handles["topic"] = group.hash, group.topics[queue.topic].hash
    handles["lease"], handles["term"] = table.lease[rows], term
    handles["queue_offset"] = table.offset[rows]
    handles["log_offset"], handles["fingerprint"] = table.log_offset[rows], table.fingerprint[rows]
    return handles
