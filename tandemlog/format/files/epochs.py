"""Epochs: which term of which master wrote which part of a log.

    epoch     1              4         5
              ├──────────────┼─────────┼──────────▶ the log's end
    start     0              1000      1700

An (epoch, start offset) pair names one term, so two logs whose tables share a pair are equal up
to the nearer of the two ends of that term. Epochs and starts grow strictly; a term in which
nothing was written gives way to the next one that starts at the same place.

The file `epochFileCheckpoint`: number of entries, CRC-32 of the entry lines (31 bits, line ends
included; 0: not to be checked), then a line `epoch-start` each.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from ..constants import CRC_MASK
from ..errors import FormatError
from ..fast_crc import crc32


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """One term: it begins at `start_offset` of the log (bytes)."""

    epoch: int
    start_offset: int


class EpochTable:
    """The terms of one log, oldest first. Immutable: a change gives a new table.

    Raises FormatError for entries that do not grow strictly in epoch and start, or are negative.
    """

    __slots__ = ("_starts", "entries")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = tuple(entries)
        before = EpochEntry(-1, -1)
        for entry in self.entries:
            if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
                raise FormatError(
                    f"epoch {entry.epoch} from {entry.start_offset} cannot follow "
                    f"epoch {before.epoch} from {before.start_offset}"
                )
            before = entry
        self._starts = [entry.start_offset for entry in self.entries]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochTable) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        terms = ", ".join(f"{entry.epoch}-{entry.start_offset}" for entry in self.entries)
        return f"EpochTable({terms})"

    @property
    def last(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    def append(self, epoch: int, start_offset: int) -> "EpochTable":
        """With a term that starts at `start_offset` and replaces all that start there or later.

        The last entry once more is no change. Raises FormatError for an epoch that is not above
        all the table has, those to be replaced included: an old master.
        """
        entry = EpochEntry(epoch, start_offset)
        if entry == self.last:
            return self
        if self.last is not None and epoch <= self.last.epoch:
            raise FormatError(
                f"epoch {epoch} from {start_offset} is not newer than the last one, "
                f"{self.last.epoch} from {self.last.start_offset}"
            )
        return EpochTable((*self.truncate_suffix(start_offset).entries, entry))

    def truncate_suffix(self, offset: int) -> "EpochTable":
        """Of a log cut at `offset`: without the terms that start there or later."""
        return EpochTable(entry for entry in self.entries if entry.start_offset < offset)

    def truncate_prefix(self, offset: int) -> "EpochTable":
        """Of a log that begins at `offset`: without the terms that end there or earlier. The
        last term has no end and stays."""
        return EpochTable(self.entries[max(0, bisect_right(self._starts, offset) - 1) :])

    def entry_at(self, offset: int) -> EpochEntry | None:
        """The term that byte `offset` belongs to; None below the first."""
        index = bisect_right(self._starts, offset) - 1
        return self.entries[index] if index >= 0 else None

    def end_of(self, offset: int) -> int | None:
        """Where the term of byte `offset` ends, that is the next start; None in the last."""
        index = bisect_right(self._starts, offset)
        return self._starts[index] if index < len(self._starts) else None

    def find_consistent_point(
        self, my_end: int, masters: "EpochTable", masters_end: int
    ) -> int | None:
        """Up to where this log, of end `my_end`, surely equals the one with table `masters`.

        From the newest of our terms down, the first that both tables have (same epoch, same
        start): the nearer of its two ends. None if they share none. A table may know a term of
        which no byte came: it is durable before its bytes are.
        """
        their_ends = dict(zip(masters.entries, masters._ends(masters_end), strict=True))
        mine = zip(self.entries, self._ends(my_end), strict=True)
        for entry, end in reversed(list(mine)):
            their_end = their_ends.get(entry)
            if their_end is not None:
                return min(end, their_end, my_end)
        return None

    def _ends(self, log_end: int) -> list[int]:
        return [*self._starts[1:], log_end] if self._starts else []

    def encode(self) -> bytes:
        """The file's text."""
        lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in self.entries).encode()
        return f"{len(self.entries)}\n{crc32(lines) & CRC_MASK}\n".encode() + lines


def decode_epochs(data: bytes | bytearray | memoryview) -> EpochTable:
    """The table in an epoch file; raises FormatError naming the line that is wrong."""
    first, _, rest = bytes(data).partition(b"\n")
    second, _, lines = rest.partition(b"\n")
    count = _number(first, 1, "the number of entries")
    crc = _number(second, 2, "the CRC of the entries")
    if crc and crc32(lines) & CRC_MASK != crc:
        raise FormatError(
            f"epoch file: line 2: CRC {crc}, the entries have {crc32(lines) & CRC_MASK}"
        )
    texts = lines.split()
    if len(texts) != count:
        raise FormatError(f"epoch file: line 1 says {count} entries, there are {len(texts)}")
    entries = []
    for number, text in enumerate(texts, start=3):
        epoch, dash, start = text.partition(b"-")
        if not dash:
            raise FormatError(f"epoch file: line {number}: {text!r} is not `epoch-start`")
        entries.append(EpochEntry(_number(epoch, number, "epoch"), _number(start, number, "start")))
    return EpochTable(entries)


def _number(text: bytes, line: int, what: str) -> int:
    digits = text.strip()
    if not digits.isdigit():
        raise FormatError(f"epoch file: line {line}: {what} is {text[:40]!r}, not a number")
    return int(digits)
