"""What consumer groups have done of their work queues, as the log says it.

    rmq_sys_tandemlog | .. | progress | .. | STATE 1/2 | STATE 2/2 | progress ..
                                            ^ needs_from: the newest whole set

A record of another kind is skipped: the service topic has records of other services too. A progress
record that cannot be read is a fault, and messages that it ended come again. The master asks this
fold once, when it begins to serve a group; afterwards its engine (storage/leases) knows more than
the log does.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from tandemlog.format.constants import SERVICE_TOPIC
from tandemlog.format.errors import CorruptRecordError, FormatError
from tandemlog.format.lease.progress import (
    PROGRESS_MAGIC,
    Progress,
    QueueProgress,
    decode_progress,
    encode_progress,
    split,
)
from tandemlog.format.record.record import decode_record

from ..leases.progress_table import UNKNOWN, ProgressTable
from .dispatch_batch import DispatchBatch
from .fold import ANYWHERE
from .service_fold import ServiceFold

PIECE_WEIGHT: Final = 1 << 20
"""Bytes of one record of a STATE, and of one part of the snapshot."""
_LENGTH: Final = Struct("<I")


class LeaseFold(ServiceFold):
    """See the module."""

    name = "leases"

    def __init__(self) -> None:
        super().__init__()
        self._table = ProgressTable()

    # ---- what the master asks

    def of_group(self, group: str) -> list[QueueProgress]:
        """What the log says about each queue of the group, up to `next_offset`."""
        with self.lock:
            return list(self._table.of_group(group))

    def groups(self) -> list[str]:
        with self.lock:
            return list(self._table.groups)

    def pairs(self) -> list[tuple[str, str]]:
        """(topic, group) of which the log says something."""
        with self.lock:
            groups = self._table.groups.items()
            return [pair for name, rows in groups for pair in {(topic, name) for topic, _ in rows}]

    def everything(self) -> tuple[list[QueueProgress], int]:
        """An entry for each queue of each group, and `next_offset`."""
        with self.lock:
            return list(self._table.entries()), self.next_offset

    @property
    def queue_count(self) -> int:
        with self.lock:
            return self._table.queue_count()

    @property
    def base_offset(self) -> int:
        """Where the newest whole STATE begins in the log; -1 if there is none."""
        return self._table.base_offset

    @property
    def first_offset(self) -> int:
        """Where the first progress record that this node knows of is; -1 if there is none."""
        return self._table.first_offset

    # ---- a fold

    def needs_from(self) -> int:
        needed = self._table.needed_offset
        return ANYWHERE if needed == UNKNOWN else needed

    def _take(self, batch: DispatchBatch, first: int) -> list[str]:
        faults = []
        rows = batch.rows_of(SERVICE_TOPIC)
        for row in rows[rows >= first].tolist():
            offset = int(batch.columns.physical_offset[row])
            try:
                body = decode_record(batch.record(row), check_crc=False).body
                if not body.startswith(PROGRESS_MAGIC):
                    continue
                progress = decode_progress(body)
            except (FormatError, CorruptRecordError) as error:
                faults.append(f"progress of groups at offset {offset} of the log: {error}")
                continue
            self._table.apply(progress, offset)
            self.changes += 1
        return faults

    def _clear(self) -> None:
        self._table = ProgressTable()

    def _encode(self) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        table = self._table
        head = {"first_offset": table.first_offset, "base_offset": table.base_offset}
        rows = []
        for part in split(table.entries(), PIECE_WEIGHT):
            body = encode_progress(Progress(part))
            rows.append(_LENGTH.pack(len(body)) + body)
        return head, rows

    def _decode(self, head: Mapping[str, Any], rows: bytes) -> None:
        entries: list[QueueProgress] = []
        at = 0
        while at < len(rows):
            if at + _LENGTH.size > len(rows):
                raise FormatError("it ends within a length")
            (length,) = _LENGTH.unpack_from(rows, at)
            at += _LENGTH.size + length
            if at > len(rows):
                raise FormatError("it ends within a part")
            entries += decode_progress(rows[at - length : at]).entries
        table = ProgressTable()
        table.load(
            entries, first_offset=int(head["first_offset"]), base_offset=int(head["base_offset"])
        )
        self._table = table
