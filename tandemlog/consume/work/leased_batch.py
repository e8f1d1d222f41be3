"""Leased messages of one queue: columns as they came, and what has become of each row.

    records   | r0 | r1 | r2 | r3 |        one buffer
    attempts    1    1    3    1
    handles   64 characters each
    states      A    A    T    W           acked, taken, waiting ...
    lanes     one for all rows; of an ordered group one for each order

A row is taken once, by whichever task or thread asks next: an iterator over the rows is the
arbiter. The states are bytes, so that a look at a thousand rows is one call.

    WAITING ─▶ TAKEN ─▶ ACKED | RETRIED | REJECTED | RELEASED
        │        ├───▶ DROPPED   the program forgot it; its lease ends
        ├─▶ RELEASED  given back unseen
        └──┴───▶ LOST            its lease has ended

A lane of an ordered group has one message under way: the next one is to be had when that is acked
or rejected. If it failed, was given back, or is lost, the later ones are given back too.
"""

import asyncio
import sys
from array import array
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import length_hint
from typing import Final, Protocol, TypeAlias

from ...errors import BadRecordError, LeaseLostError
from ...format.lease.policy import HANDLE_CHARS, AckResult, Ordering, ack_sentence
from ...v1 import work_pb2
from ..received.received_message import ReceivedMessage

WAITING, TAKEN, ACKED, RETRIED, REJECTED, RELEASED, DROPPED, LOST = range(8)
OPEN: Final = (WAITING, TAKEN)

STATE_NAMES: Final = {
    ACKED: "acknowledged",
    RETRIED: "given back for a retry",
    REJECTED: "rejected",
    RELEASED: "released",
}


class Keeper(Protocol):
    """What a delivery asks of the consumer that received it: see WorkCore."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def crowded(self) -> bool: ...
    def settle(
        self,
        taken: "Taken",
        state: int,
        *,
        delay_ms: int | None = None,
        error: str = "",
        confirmed: "asyncio.Future[None] | None" = None,
        here: bool = True,
    ) -> bool: ...
    def forgotten(self, batch: "LeasedBatch", row: int) -> None: ...
    def flush(self) -> None: ...
    async def extend(self, taken: "Taken", lease_ms: int) -> None: ...
    async def room_to_settle(self) -> None: ...


class Lane:
    """Rows of a batch, in order; see the module. `rows` gives each of them once."""

    __slots__ = ("batch", "rows")

    def __init__(self, batch: "LeasedBatch", rows: Iterator[int]) -> None:
        self.batch = batch
        self.rows = rows


class LeasedBatch:
    """See the module. `until`: the loop's time at which the leases end, by this client's clock;
    `renewed_at`: when they were last asked for. `lane_of`: of an ordered group, the lane of each
    row. `epoch`: of the master that leased them, 0 where nodes name none."""

    __slots__ = (
        "attempts", "core", "epoch", "handles", "lane_of", "lanes", "last_errors", "longer",
        "middle", "positions", "queue_id", "queue_offsets", "records", "renewed_at", "sizes",
        "states", "topic", "until",
    )  # fmt: skip

    def __init__(
        self,
        core: Keeper,
        leased: work_pb2.LeasedMessages,
        ordering: Ordering,
        leased_at: float,
        lease_s: float,
        epoch: int = 0,
    ) -> None:
        """Raises BadRecordError if the columns do not fit together."""
        count = leased.count
        self.core = core
        self.epoch = epoch
        self.topic: str = leased.topic
        self.queue_id: int = leased.queue_id
        self.records: bytes = leased.records
        self.sizes = _numbers("I", leased.sizes)
        self.positions = [*accumulate(self.sizes, initial=0)]
        self.attempts = _numbers("H", leased.attempts)
        self.queue_offsets = _numbers("q", leased.queue_offsets)
        self.handles: bytes = leased.handles
        self.last_errors: Mapping[int, str] = dict(leased.last_errors)
        columns = (self.sizes, self.attempts, self.queue_offsets)
        if (
            any(len(each) != count for each in columns)
            or len(self.handles) != count * HANDLE_CHARS
            or self.positions[-1] != len(self.records)
        ):
            raise BadRecordError(
                f"leased messages of {self.topic}/{self.queue_id}: the columns of {count} messages "
                "do not fit together"
            )
        self.states = bytearray(count)
        self.longer: dict[int, float] = {}
        self.renewed_at = leased_at
        self.until = leased_at + lease_s
        self.middle = count // 2
        self.lane_of: dict[int, Lane] = {}
        self.lanes = self._lanes(ordering)

    def __len__(self) -> int:
        return len(self.states)

    def _lanes(self, ordering: Ordering) -> list[Lane]:
        rows = range(len(self))
        if ordering is Ordering.NONE:
            return [Lane(self, iter(rows))]
        by_key: dict[str | int, list[int]] = {}
        for row in rows:
            key: str | int | None = ""
            if ordering is Ordering.KEY:
                key = self._sharding_key(row)
            by_key.setdefault(row if key is None else key, []).append(row)
        lanes = []
        for members in by_key.values():
            lane = Lane(self, iter(members))
            lanes.append(lane)
            self.lane_of.update(dict.fromkeys(members, lane))
        return lanes

    def _sharding_key(self, row: int) -> str | None:
        """None for a message that is in no order; a damaged one is by itself too."""
        try:
            return self.message(row).sharding_key
        except BadRecordError:
            return None

    def message(self, row: int) -> ReceivedMessage:
        return ReceivedMessage(self.records, self.positions[row], self.sizes[row])

    def handle(self, row: int) -> bytes:
        return self.handles[row * HANDLE_CHARS : (row + 1) * HANDLE_CHARS]

    def place(self, row: int) -> str:
        """For people."""
        return f"{self.topic}/{self.queue_id} {self.queue_offsets[row]}"

    @property
    def waiting(self) -> int:
        """About how many rows are still to be taken."""
        return sum(length_hint(lane.rows) for lane in self.lanes)

    @property
    def finished(self) -> bool:
        """Whether no row's lease is of interest any more."""
        return not any(self.states.count(state) for state in OPEN)

    def rows_in(self, *states: int) -> list[int]:
        return [row for row, state in enumerate(self.states) if state in states]

    def release_waiting(self) -> list[int]:
        """The rows that no task has taken, which none takes from now on."""
        rows = [row for lane in self.lanes for row in lane.rows if self.states[row] == WAITING]
        for row in rows:
            self.states[row] = RELEASED
        return rows


Taken: TypeAlias = tuple[LeasedBatch, int]
"""A message: its batch, and its row there."""


def lost_error(batch: LeasedBatch, row: int, result: AckResult) -> LeaseLostError:
    """Of one message, for the caller that settles it."""
    return LeaseLostError(f"{batch.place(row)}: {ack_sentence(result)}")


def _numbers(code: str, encoded: bytes) -> "array[int]":
    """Little-endian numbers."""
    numbers = array(code)
    if len(encoded) % numbers.itemsize:
        return numbers
    numbers.frombytes(encoded)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
