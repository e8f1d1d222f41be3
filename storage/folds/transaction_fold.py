"""Transactions: which are open, and how the last ones ended, as the log says it.

    log   | H1 | H2 | .. | COMMIT H1 H2 | C1 | C2 | OP H1 H2 |     two messages, committed
          | H3 |    ..                  | C3 | OP H3 |             one message, committed
          | H4 | H5 | .. | OP H4 H5 |                              rolled back

    H    a half message                        COMMIT  the decision, of SERVICE_TOPIC (decision.py)
    C    a committed message, names its half   OP      its halves have ended (half.py)

A half is open until the first record that says otherwise; that is the transaction's outcome. After
a COMMIT it still needs its C, so that its message is there, and its OP, for a broker that may take
the store over. Both follow from the log: a master that finds one missing, because
the last master did not come so far, writes it.

What a broker of RocketMQ writes is read as well. Where it asks for a decision it stores the half
once more, with TRANSACTION_CHECK_TIMES: the older one ends. A half that it gives up it copies to
UNDECIDED_TOPIC.

A COMMIT carries offsets of groups too. They are handed to the table of consumer offsets in log
order, on every node, and kept here: no older table of another node takes them back
(consumer_offsets.py).

Open halves are few: their number is bounded where they are put (half_check.py). So they are plain
objects, found by log offset, by transaction, by UNIQ_KEY and by queue offset.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import HALF_TOPIC, OP_HALF_TOPIC, SERVICE_TOPIC, UNDECIDED_TOPIC
from tandemlog.format.delay.framing import name_of
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import TRANSACTION_COMMIT
from tandemlog.format.transaction.decision import (
    NO_OFFSET,
    Commit,
    GroupOffset,
    OffsetsSet,
    TakenOver,
    said_by,
)
from tandemlog.format.transaction.half import Half, ended_halves, half_of

from .dispatch_batch import DispatchBatch
from .fold import ANYWHERE
from .service_fold import ServiceFold

OUTCOMES_KEPT: Final = 65_536
_TOPICS: Final = (HALF_TOPIC, OP_HALF_TOPIC, SERVICE_TOPIC)
"""Records of other topics say something only of halves that are open."""
Place = tuple[str, str, int]
"""Group, topic, queue id."""


@dataclass(slots=True)
class OpenHalf:
    """A half that is not done with, at a log offset, of `size` bytes. `op_begin`: the first queue
    offset at which an OP record of it, or of a later half, can stand. `committed`: a COMMIT names
    it; `delivered`: its message is there; `recorded`: its OP record is."""

    log_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    half: Half
    op_begin: int
    committed: bool = False
    delivered: bool = False
    recorded: bool = False

    @property
    def undecided(self) -> bool:
        return not (self.committed or self.delivered)


class BrokerOffsets(NamedTuple):
    """Queue offsets of the half and the OP topic from which a broker has to look again."""

    halves: int
    ops: int


class TransactionFold(ServiceFold):
    """See the module. Its users hold the `lock`.

    `outcomes`: of the last transactions, whether each was committed. `unfinished`: log offsets of
    halves for which a master has something to write. `on_offsets` gets the offsets of groups that
    changed, `on_all_offsets` all of them after a way back.
    """

    name: ClassVar[str] = "transactions"

    def __init__(self, outcomes_kept: int = OUTCOMES_KEPT) -> None:
        super().__init__()
        self.halves: dict[int, OpenHalf] = {}
        self.outcomes: dict[str, bool] = {}
        self.offsets: dict[Place, int] = {}
        self.unfinished: set[int] = set()
        self.on_offsets: Callable[[Iterable[GroupOffset]], None] = _unheard
        self.on_all_offsets: Callable[[Iterable[GroupOffset]], None] = _unheard
        self.on_ended: Callable[[int], None] = _uncounted
        self._kept = outcomes_kept
        self._by_transaction: dict[str, list[int]] = {}
        self._by_queue_offset: dict[int, int] = {}
        self._by_key: dict[str, list[int]] = {}
        self._next_half = self._next_op = 0

    # ---- looking

    def of(self, transaction_id: str) -> list[OpenHalf]:
        """The halves of a transaction that are not done with, in log order."""
        return [self.halves[each] for each in self._by_transaction.get(transaction_id, ())]

    def of_key(self, key: str) -> list[OpenHalf]:
        """The halves with this UNIQ_KEY that are not done with, in log order. A client that sends
        its message once more, since it has no answer, has two of them."""
        return [self.halves[each] for each in self._by_key.get(key, ())]

    def transactions(self) -> Iterator[tuple[str, list[OpenHalf]]]:
        """Those with halves that are not done with, the oldest first."""
        for transaction_id in list(self._by_transaction):
            yield transaction_id, self.of(transaction_id)

    @property
    def open_transactions(self) -> int:
        return len(self._by_transaction)

    def broker_offsets(self) -> BrokerOffsets:
        """What a broker that takes the store over needs to know: below them nothing is open."""
        first = next(iter(self.halves.values()), None)
        if first is None:
            return BrokerOffsets(self._next_half, self._next_op)
        return BrokerOffsets(first.queue_offset, first.op_begin)

    def needs_from(self) -> int:
        with self.lock:
            return next(iter(self.halves), ANYWHERE)

    # ---- a ServiceFold

    def _take(self, batch: DispatchBatch, first: int) -> list[str]:
        faults: list[str] = []
        for row in self._rows(batch, first):
            record = batch.record(row)
            offset = int(batch.columns.physical_offset[row])
            try:
                self._apply_record(decode_record(record, check_crc=False), offset, len(record))
            except FormatError as error:
                faults.append(f"the record at log offset {offset}: {error}")
        return faults

    def _rows(self, batch: DispatchBatch, first: int) -> list[int]:
        """The rows that may say something of transactions, ascending."""
        columns = batch.columns
        if not self.halves and not batch.has_any(_TOPICS):
            return []
        halves = batch.rows_of(HALF_TOPIC)
        parts = [halves, batch.rows_of(OP_HALF_TOPIC), batch.rows_of(SERVICE_TOPIC)]
        if self.halves or len(halves):
            parts += [batch.rows_of(UNDECIDED_TOPIC), self._commits(batch)]
        rows = np.unique(np.concatenate(parts))
        found: list[int] = rows[(rows >= first) & (rows < columns.count)].tolist()
        return found

    def _commits(self, batch: DispatchBatch) -> NDArray[np.int64]:
        columns = batch.columns
        naming = batch.naming
        committed = columns.transaction_type[naming] == TRANSACTION_COMMIT
        mine: NDArray[np.int64] = naming[committed]
        return mine

    def _apply_record(self, record: Record, offset: int, size: int) -> None:
        if record.topic == HALF_TOPIC:
            self._open(record, offset, size)
        elif record.topic == OP_HALF_TOPIC:
            self._next_op = max(self._next_op, record.queue_offset + 1)
            self.changes += 1
            for queue_offset in ended_halves(record):
                self._record_end(queue_offset)
        elif record.topic == SERVICE_TOPIC:
            self._apply_said(record)
        elif record.topic == UNDECIDED_TOPIC:
            self._give_up(record)
        else:
            self._deliver(record)

    def _open(self, record: Record, offset: int, size: int) -> None:
        self._next_half = max(self._next_half, record.queue_offset + 1)
        self.changes += 1
        half = half_of(record)
        if half is None:
            return
        if half.check_times:
            # a broker has asked, and stored the half once more
            for older in self.of(half.transaction_id):
                if older.half.key == half.key:
                    self._end(older)
        self._keep_half(
            OpenHalf(offset, size, record.queue_offset, record.store_timestamp, half, self._next_op)
        )
        if half.transaction_id in self.outcomes:
            self.unfinished.add(offset)  # too late

    def _keep_half(self, opened: OpenHalf) -> None:
        offset, half = opened.log_offset, opened.half
        self.halves[offset] = opened
        self._by_transaction.setdefault(half.transaction_id, []).append(offset)
        self._by_key.setdefault(half.key, []).append(offset)
        self._by_queue_offset[opened.queue_offset] = offset

    def _record_end(self, queue_offset: int) -> None:
        """An OP record names this half."""
        found = self.halves.get(self._by_queue_offset.get(queue_offset, -1))
        if found is None:
            return
        found.recorded = True
        if found.committed and not found.delivered:
            return
        if found.undecided:
            self._decide(found.half.transaction_id, committed=False)
        self._end(found)

    def _deliver(self, record: Record) -> None:
        """A committed message names its half. A broker may name an older one, which it has stored
        once more since."""
        found = self._named(record)
        if found is None and (key := record.uniq_key):
            again = (each for each in self.of(key) if each.half.check_times)
            found = next(again, None)
        if found is None:
            return
        self._decide(found.half.transaction_id, committed=True)
        found.delivered = True
        self._settle(found)

    def _named(self, record: Record) -> OpenHalf | None:
        named = record.prepared_transaction_offset
        return self.halves.get(0 if named == name_of(0) else named)

    def _settle(self, found: OpenHalf) -> None:
        self.changes += 1
        if found.delivered and found.recorded:
            self._end(found)
        else:
            self.unfinished.add(found.log_offset)

    def _give_up(self, record: Record) -> None:
        """A node names the half, and writes an OP record besides; a broker does neither."""
        if record.prepared_transaction_offset:
            named = self._named(record)
            if named is not None and named.undecided:
                self._decide(named.half.transaction_id, committed=False)
            return
        half = half_of(record)
        for found in () if half is None else self.of(half.transaction_id):
            if half is not None and found.half.key == half.key and found.undecided:
                self._decide(half.transaction_id, committed=False)
                self._end(found)

    def _apply_said(self, record: Record) -> None:
        said = said_by(record)
        if isinstance(said, Commit):
            self._commit(said)
        elif isinstance(said, OffsetsSet):
            self._set_offsets(said.offsets)
        elif isinstance(said, TakenOver):
            for found in [each for each in self.halves.values() if each.undecided]:
                if found.queue_offset < said.ended_below:
                    self._end(found)

    def _commit(self, said: Commit) -> None:
        if said.transaction_id in self.outcomes:
            return  # the first outcome is the only one
        self._decide(said.transaction_id, committed=True)
        for offset in said.halves:
            found = self.halves.get(offset)
            if found is not None and found.undecided:
                found.committed = True
                self._settle(found)
        forward = [each for each in said.offsets if each.queue_offset > self._offset(each)]
        self._set_offsets(forward)

    def _offset(self, row: GroupOffset) -> int:
        return self.offsets.get((row.group, row.topic, row.queue_id), NO_OFFSET)

    def _set_offsets(self, rows: Sequence[GroupOffset]) -> None:
        for row in rows:
            place = (row.group, row.topic, row.queue_id)
            if row.queue_offset == NO_OFFSET:
                self.offsets.pop(place, None)
            else:
                self.offsets[place] = row.queue_offset
        if rows:
            self.changes += 1
            self.on_offsets(rows)

    def _decide(self, transaction_id: str, *, committed: bool) -> None:
        """Halves of it that the decision does not name come too late: they are rolled back."""
        self.changes += 1
        self.outcomes.setdefault(transaction_id, committed)
        self.unfinished.update(self._by_transaction.get(transaction_id, ()))
        while len(self.outcomes) > self._kept:
            del self.outcomes[next(iter(self.outcomes))]

    def _end(self, found: OpenHalf) -> None:
        self.changes += 1
        del self.halves[found.log_offset]
        self.unfinished.discard(found.log_offset)
        if self._by_queue_offset.get(found.queue_offset) == found.log_offset:
            del self._by_queue_offset[found.queue_offset]
        half = found.half
        for index, name in ((self._by_transaction, half.transaction_id), (self._by_key, half.key)):
            rest = index[name]
            rest.remove(found.log_offset)
            if not rest:
                del index[name]
        self.on_ended(found.log_offset)

    # ---- snapshots

    def _clear(self) -> None:
        for offset in self.halves:
            self.on_ended(offset)
        self.halves, self.outcomes, self.offsets = {}, {}, {}
        self.unfinished = set()
        self._by_transaction, self._by_queue_offset, self._by_key = {}, {}, {}
        self._next_half = self._next_op = 0
        self.on_all_offsets(())

    def _encode(self) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """One line of JSON: halves, outcomes, offsets."""
        rows = {
            "halves": [
                [
                    each.log_offset, each.size, each.queue_offset, each.store_timestamp,
                    each.op_begin, each.committed, each.delivered, each.recorded,
                    each.half.topic, each.half.queue_id, each.half.transaction_id, each.half.key,
                    each.half.group, each.half.check_times,
                ]
                for each in self.halves.values()
            ],
            "outcomes": [[each, committed] for each, committed in self.outcomes.items()],
            "offsets": [[*place, offset] for place, offset in self.offsets.items()],
        }  # fmt: skip
        head = {"next_half": self._next_half, "next_op": self._next_op}
        return head, [json.dumps(rows, separators=(",", ":")).encode()]

    def _decode(self, head: Mapping[str, Any], rows: bytes) -> None:
        state = json.loads(rows)
        next_half, next_op = int(head["next_half"]), int(head["next_op"])
        halves = [
            OpenHalf(
                offset, size, queue_offset, time,
                Half(topic, queue_id, transaction_id, key, group, check_times),
                op_begin, committed, delivered, recorded,
            )
            for (
                offset, size, queue_offset, time, op_begin, committed, delivered, recorded,
                topic, queue_id, transaction_id, key, group, check_times,
            ) in state["halves"]
        ]  # fmt: skip
        outcomes = {str(each): bool(committed) for each, committed in state["outcomes"]}
        offsets = {(str(g), str(t), int(q)): int(offset) for g, t, q, offset in state["offsets"]}
        for offset in self.halves:
            self.on_ended(offset)
        self.halves, self.outcomes, self.offsets = {}, outcomes, offsets
        self.unfinished, self._by_transaction = set(), {}
        self._by_queue_offset, self._by_key = {}, {}
        self._next_half, self._next_op = next_half, next_op
        for each in halves:
            self._keep_half(each)
            if not each.undecided or each.half.transaction_id in outcomes:
                self.unfinished.add(each.log_offset)
        self.on_all_offsets([GroupOffset(*place, offset) for place, offset in offsets.items()])


def _unheard(rows: Iterable[GroupOffset]) -> None:
    """No table of offsets follows this fold."""


def _uncounted(log_offset: int) -> None:
    """Open halves are not counted."""
