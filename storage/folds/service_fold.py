"""What the folds of the services have in common: lock, position, snapshots, the way back.

Reput dispatches only what is confirmed, so a cut below `next_offset` is rare: bytes that were
confirmed are lost, as after a forced failover. If nothing that is cut
off has changed the state, only the position goes back. Else the way back is the snapshot on the
disk, if it is true for a position at or below the cut. Else the fold is empty at the log's begin,
and the log is applied again from there. That takes a while, but it needs no second set of rules
that undoes each record.

    snapshot at S                cut at C
    |----------------------------|........|        S <= C: restore, then apply S..C again
    |------------|...............|.... S           S > C:  empty, then apply the whole log again
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tandemlog.format.errors import FormatError

from .dispatch_batch import DispatchBatch
from .fold import ANYWHERE, CountRecords, Snapshot
from .snapshot_form import decode_snapshot, encode_snapshot, snapshot_offset


@dataclass(frozen=True, slots=True)
class FoldSnapshot:
    """The state of a service's fold; `rows` must not change afterwards. `generation` is that of
    the fold's log: another one after a cut."""

    log_offset: int
    changes: int
    generation: int
    needs_from: int
    head: Mapping[str, Any]
    rows: Sequence[bytes]

    def encode(self) -> bytes:
        return encode_snapshot(self.head, self.rows)

    def without_rows(self) -> "FoldSnapshot":
        return replace(self, rows=())


class ServiceFold(ABC):
    """See the module. Subclasses keep the state and take `self.lock` around every access to it.

    `VERSION` is that of the rows' form: a snapshot of another version is not restored, and the log
    is applied again.
    """

    name: ClassVar[str]
    VERSION: ClassVar[int] = 1

    def __init__(self) -> None:
        self.next_offset = 0
        self.noted: int | None = None
        self.lock = threading.RLock()
        # what is on the disk, for the way back
        self.saved: Callable[[], bytes | None] = lambda: None
        self.changes = 0
        self._generation = 0
        # no record from there on has changed the state
        self._changed_at = 0

    # ---- what a service's fold is

    @abstractmethod
    def _take(self, batch: DispatchBatch, first: int) -> list[str]:
        """Apply the rows from `first` on, and count in `changes` if any of them changed the state;
        the caller has the lock. Returns faults as `apply`."""

    @abstractmethod
    def _clear(self) -> None:
        """Know nothing."""

    @abstractmethod
    def _encode(self) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """What the head of the snapshot has besides version and position, and the rows."""

    @abstractmethod
    def _decode(self, head: Mapping[str, Any], rows: bytes) -> None:
        """Become what `_encode` returned. Raises FormatError, ValueError, KeyError, TypeError, and
        changes nothing then."""

    def needs_from(self) -> int:
        """Services override it where a record that is deleted would be missed."""
        return ANYWHERE

    @property
    def generation(self) -> int:
        """Another one after each cut: what was derived from the state before may not hold."""
        return self._generation

    # ---- a Fold

    def apply(self, batch: DispatchBatch) -> list[str]:
        with self.lock:
            if batch.end <= self.next_offset:
                return []
            offsets = batch.columns.physical_offset
            first = 0
            if batch.start < self.next_offset:
                first = int(offsets.searchsorted(self.next_offset))
            before = self.changes
            faults = self._take(batch, first)
            self.next_offset = batch.end
            if self.changes != before:
                self._changed_at = batch.end
            return faults

    def truncate(self, log_offset: int, count_records: CountRecords) -> None:
        with self.lock:
            if log_offset >= self.next_offset:
                return
            if log_offset >= self._changed_at:
                # what is cut off has changed nothing
                self._set_back(log_offset)
                return
            data, noted = self.saved(), -1 if self.noted is None else self.noted
            try:
                # beyond `noted` it is of a log before an earlier cut
                if data is not None and snapshot_offset(data) <= min(noted, log_offset):
                    self.restore(data)
                    return
            except FormatError:
                pass  # damaged: as if there were none
            self.reset(0)

    def pass_to(self, log_offset: int) -> None:
        """No record below `log_offset` changes the state that was restored."""
        with self.lock:
            self.next_offset = self.noted = max(self.next_offset, log_offset)

    def reset(self, log_offset: int) -> None:
        with self.lock:
            self._clear()
            self._begin_generation(log_offset)

    def snapshot(self) -> FoldSnapshot:
        with self.lock:
            head, rows = self._encode()
            full = {"version": self.VERSION, "log_offset": self.next_offset, **head}
            return FoldSnapshot(
                self.next_offset, self.changes, self._generation, self.needs_from(), full, rows
            )

    def holds(self, snapshot: Snapshot) -> bool:
        return isinstance(snapshot, FoldSnapshot) and snapshot.generation == self._generation

    def restore(self, data: bytes) -> None:
        head, rows = decode_snapshot(data, self.VERSION, self.name)
        with self.lock:
            try:
                self._decode(head, rows)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise FormatError(f"{self.name}: it has another form: {error!r}") from error
            self._begin_generation(int(head["log_offset"]))
            self.noted = self.next_offset

    def _begin_generation(self, log_offset: int) -> None:
        self._changed_at = log_offset
        self._set_back(log_offset)

    def _set_back(self, log_offset: int) -> None:
        self.next_offset = log_offset
        self.noted = None if self.noted is None else min(self.noted, log_offset)
        self._generation += 1
        self.changes += 1
