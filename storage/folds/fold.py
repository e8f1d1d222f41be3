"""A fold: state that follows from the records of the log, in their order, and from nothing else.

    log      | r r r r | r r r r r | r r r ..........| confirmed
    batches   '-apply-' '--apply--' ^ next_offset          the fold is true for the log below it
    disk      snapshot at S ........^                      an open restores it, and applies the rest

The same records give the same state on every node: a new master has it already, a cut takes it back
to what the shorter log says, and a node that lost its snapshot applies the log again from its
begin. Nothing that decides what a client gets (which request was stored, which delayed message has
been delivered, which message of a group is done) is kept anywhere else.

    apply          a batch of records                                       reput
    truncate       the log was cut                                          reput
    reset          an empty log begins                                      set aside
    snapshot       everything, and the log offset for which it is true      checkpoint
    restore        what `snapshot` wrote                                    open
    needs_from     retention deletes nothing of the log from there on       cleaner

Retention deletes records that a fold was made of. Either the fold does not miss them (what they
began has ended), or `needs_from` keeps them until it does not: then what is left of the log still
gives the whole state. For retention the snapshot on the disk counts: what ended an entry after it
may still be lost in a power cut, and then the entry needs its record again.
"""

from collections.abc import Callable
from typing import Final, Protocol

from .dispatch_batch import DispatchBatch

ANYWHERE: Final = 1 << 63
"""Beyond every log offset."""

CountRecords = Callable[[int, int], tuple[int, int]]
"""(start, end) of a stretch of the log -> its records, and the store time (ms) of the last one, as
DispatchSource.count_records."""


class Snapshot(Protocol):
    """A fold's whole state, true for the log below `log_offset`. `changes` tells two states of a
    fold apart."""

    @property
    def log_offset(self) -> int: ...

    @property
    def changes(self) -> int: ...

    @property
    def needs_from(self) -> int:
        """As Fold.needs_from, of this state."""
        ...

    def encode(self) -> bytes:
        """The form on the disk (snapshot_form.py). May take long: it runs without any lock."""
        ...

    def without_rows(self) -> "Snapshot":
        """The same without its content, to be remembered as saved."""
        ...


class Fold(Protocol):
    """See the module; thread-safe. `name` is that of its file in the folder `tandemlog/`, and
    `noted` the log offset below which the snapshot on the disk says all; None if there is none."""

    @property
    def name(self) -> str: ...

    @property
    def next_offset(self) -> int: ...

    noted: int | None

    @property
    def changes(self) -> int:
        """Grows with every change of the state, but not where only `next_offset` moves."""
        ...

    def apply(self, batch: DispatchBatch) -> list[str]:
        """Records below `next_offset` are skipped. Returns what was wrong with records that count
        as ordinary ones for that."""
        ...

    def truncate(self, log_offset: int, count_records: CountRecords) -> None:
        """The log ends at `log_offset` now. Afterwards `next_offset` is that or less: then the
        records from there on come again."""
        ...

    def reset(self, log_offset: int) -> None:
        """The log is empty, or nothing is known of it; it begins at `log_offset`."""
        ...

    def snapshot(self) -> Snapshot: ...

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the log below the snapshot's offset is still the same."""
        ...

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` encoded. Raises FormatError, and changes nothing then."""
        ...

    def needs_from(self) -> int:
        """The earliest log offset whose records a node without any snapshot needs; ANYWHERE for
        none."""
        ...
