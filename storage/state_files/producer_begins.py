"""What producers had stored before the log of this store begins.

    the cluster's log    [p0][p1]....[p7] expired |......................|
    this store's log                              |begin.................|    nothing of producer p

A log that was copied from another node contains nothing about a producer whose requests had all
expired by then. If this node became master, it would not know the producer, and would store a retry
of its last request twice. So the other node sends its table with the log (prologue.py), limited to
what is below the log's begin, and this store keeps it here:

    tandemlog/producers-begin      the form of tandemlog/producers; true for the log below its begin

It is a floor under the table, for every open: also if the table was written before, or has to be
rebuilt from the log. If the table knows a producer, the table is right. A truncated log never ends
below its begin, so these values stay valid.
"""

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from tandemlog.format.errors import FormatError

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small
from ..folds.snapshot_form import snapshot_offset
from ..producers.producer_snapshot import TableSnapshot
from ..producers.producer_table import ProducerTable

KEPT = 4
"""Requests of a producer: only its last ones can still be on their way. What came before them is
answered as stored."""
MOST_BYTES = 64 << 20
"""Of those rows: a prologue that is too large to send would keep a slave out forever."""


def table_before(table: ProducerTable, log_offset: int, most_bytes: int = MOST_BYTES) -> bytes:
    """The part of the table that a log which begins at `log_offset`, the start of a file, does not
    tell; above `most_bytes` only the producers that put last."""
    snapshot = _cut(table.snapshot().encode(), log_offset)
    sizes = list(accumulate(len(row) for row in reversed(snapshot.rows)))
    room = bisect_right(sizes, most_bytes)
    if room < len(sizes):
        rows = snapshot.rows[len(sizes) - room :]
        names = {row[1 : 1 + row[0]].decode() for row in rows}
        open_producer = (
            snapshot.open if snapshot.open is not None and snapshot.open in names else None
        )
        snapshot = replace(snapshot, rows=rows, open=open_producer)
    return snapshot.encode()


def _cut(data: bytes, log_offset: int) -> TableSnapshot:
    """Raises FormatError."""
    older = ProducerTable()
    older.restore(data)
    older.keep_below(log_offset, KEPT)
    return older.snapshot()


class ProducerBeginsFile:
    """The file of one store; see the module."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.note = ""

    def save(self, data: bytes, log_offset: int) -> bytes:
        """Save another store's `table_before` for a log that begins at `log_offset`, durably;
        returns it cut to that. Raises FormatError, OSError."""
        data_kept = _cut(data, log_offset).encode()
        write_small(self._files, self.path, data_kept)
        return data_kept

    def load(self, log_start: int) -> bytes | None:
        """None if there is no file, if it is damaged (as `note` then tells), or if the log begins
        before it: that log is empty, and the next master sends the part again."""
        data = read_small(self._files, self.path)
        if data is None:
            return None
        try:
            ProducerTable().restore(data)
            return data if snapshot_offset(data) <= log_start else None
        except FormatError as error:
            self.note = (
                f"{self.path} is damaged and ignored: {error}; producers whose requests had "
                "expired before this log began are known from the table alone"
            )
            return None

    def remove(self) -> None:
        remove_small(self._files, self.path)
