"""What consumers say about messages that they received, by their handles.

A handle is accepted if it names the message that lies there, and no other consumer has it now:

    done already                                                    ALREADY_DONE
    another message lies there, or none                             INVALID_RECEIPT_HANDLE
    another delivery of it is leased                                INVALID_RECEIPT_HANDLE
    more time is asked for, and the consumer has given it back      INVALID_RECEIPT_HANDLE
    otherwise, also if an earlier master delivered it               accepted

So work that a consumer has done counts after a change of master, and after its lease has ended,
while no other consumer was given the message. An acknowledgement counts even then, if an earlier
master delivered it: the work is done. All else would take the message from who has it now. More
time for a message that was given back would come from a request that another one has overtaken: no
consumer works on it. Numbers of deliveries differ between masters. Which message lies there is
known of rows that this master has delivered. For others it is read from the queue and the log
first: `to_read`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.grouping import stable_order
from tandemlog.format.lease.policy import AckResult

from .queue_leases import QueueLeases
from .unacked import I64, NOT_KNOWN, Rows, State

U32 = NDArray[np.uint32]
Results = NDArray[np.uint8]
TO_READ: Final = 255
"""In the place of a result: the message must be read first."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class Kind(Enum):
    ACK = auto()
    RETRY = auto()
    RELEASE = auto()
    EXTEND = auto()
    REJECT = auto()


@dataclass(frozen=True, slots=True)
class Operation:
    """`ms`: of RETRY the delay, None for that of the policy; of EXTEND the time of the lease."""

    kind: Kind
    ms: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ToRead:
    """Handles of one queue whose messages must be read: `rows` i8[n] are their indexes in the
    request, `handles` HANDLE[n]."""

    queue: QueueLeases
    rows: I64
    handles: NDArray[np.void]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The messages at the queue offsets of a ToRead: `log_offsets` i8[n], -1 where there is none,
    `fingerprints` u4[n], `keys` u4[n]."""

    log_offsets: I64
    fingerprints: U32
    keys: U32


def each_once(rows: Rows) -> Rows:
    """Ascending, without repetitions."""
    if (rows[1:] > rows[:-1]).all():
        return rows
    return np.unique(rows)


def is_same_message(
    log_offsets: I64, fingerprints: U32, handles: NDArray[np.void]
) -> NDArray[np.bool_]:
    """Whether the messages that lie there are those of the handles."""
    same: NDArray[np.bool_] = log_offsets == handles["log_offset"]
    same &= fingerprints == handles["fingerprint"]
    return same


def judge(
    queue: QueueLeases, handles: NDArray[np.void], kind: Kind, term: int
) -> tuple[Results, Rows]:
    """A result for each handle, or TO_READ; and of those that are OK the row number."""
    offsets = handles["queue_offset"].astype(np.int64)
    results = np.full(len(offsets), AckResult.INVALID_RECEIPT_HANDLE, np.uint8)
    rows, found = queue.rows.find(offsets)
    done = ~found & ((offsets < queue.floor) | queue.ended.contains(offsets))
    results[done] = AckResult.ALREADY_DONE
    if len(queue.rows):
        known = found & (queue.rows.log_offset[rows] != NOT_KNOWN)
        same = known & is_same_message(
            queue.rows.log_offset[rows], queue.rows.fingerprint[rows], handles
        )
        another = queue.rows.lease[rows] != handles["lease"]
        if kind is not Kind.EXTEND:
            another &= queue.rows.state[rows] == State.LEASED
        if kind is Kind.ACK:
            another &= handles["term"] == term
        results[same & ~another] = AckResult.OK
    else:
        known = found
    results[~known & ~done & (offsets < queue.end)] = TO_READ
    return results, rows


def carry_out(queue: QueueLeases, rows: Rows, operation: Operation, now_ms: int) -> None:
    """For these live rows, each named once."""
    kind = operation.kind
    if kind is Kind.ACK:
        queue.end_rows(rows)
    elif kind is Kind.RETRY:
        queue.retry(rows, operation.ms, now_ms, operation.error)
    elif kind is Kind.RELEASE:
        queue.release(rows)
    elif kind is Kind.EXTEND:
        queue.extend(rows, now_ms + (operation.ms or 0))
    else:
        queue.reject(rows, operation.error)


def by_queue(handles: NDArray[np.void], rows: I64) -> Iterator[I64]:
    """The rows of each queue of each topic."""
    if not len(rows):
        return
    place = handles["topic"][rows] ^ (handles["queue_id"][rows] * _ODD)
    if (place == place[0]).all():
        yield rows
        return
    _, which = np.unique(place, return_inverse=True)
    order = stable_order(which.astype(np.int64), int(which.max()) + 1)
    breaks = np.flatnonzero(np.diff(which[order])) + 1
    for part in np.split(order, breaks):
        yield rows[part]
