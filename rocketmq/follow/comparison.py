"""Is the log here the broker's, and up to where? Decided again at each connect, as pure code.

    here      | a b c d e f|          the broker sends from c on
    broker    | a b c d e f g h       equal up to our end: continue there
              | a b c d e f|          the same
              | a b c d|              it lost its tail in a crash: cut at its end
              | a b c d x y z         and took other messages since: cut where they begin
              | x y z                 nothing in common further back either: set the log aside
                    | g h             its retention has dropped all that we have: set aside, as
                                      nothing shows that it had the same

Log bytes carry their own position and the time when they were stored, so a whole record that is
the same in both logs proves that both have one history up to it. If the last 64 KiB differ from
their first record on, more is asked for, in the end the whole log.

A log is cut or set aside only for the broker that it came from, by the name in following.json.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tandemlog.format.constants import MIN_RECORD_SIZE, Buffer

from ..wire.errors import LogsDifferError, WrongBrokerError
from .broker_facts import BrokerFacts
from .following_file import Following

WINDOWS = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""How many bytes before our end are compared at first, and then, while they differ from their
beginning."""
HEAD_BYTES = MIN_RECORD_SIZE
"""With fewer bytes nothing is proven."""

NextRecord: TypeAlias = Callable[[int, int], int | None]
Read: TypeAlias = Callable[[int, int], Buffer]


@dataclass(frozen=True, slots=True)
class OwnLog:
    """What is here: bytes `begin`..`end` in files of `file_size` bytes."""

    begin: int
    end: int
    file_size: int

    @property
    def empty(self) -> bool:
        return self.begin == self.end


@dataclass(frozen=True, slots=True)
class BeginAt:
    """The log is empty: its files get this size, and it begins at `offset`."""

    offset: int
    file_size: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the broker for its log from `start` on; it is compared up to `end`, our end or the
    broker's. `start` == `end`: nothing is here to be compared."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CutAt:
    """The log here ends at `offset` from now on; what lies behind is kept in a file."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """The whole log is set aside; an empty one begins at `offset`."""

    offset: int
    reason: str


Step: TypeAlias = BeginAt | Ask | CutAt | SetAside


def check_identity(note: Following | None, facts: BrokerFacts) -> None:
    """Raises WrongBrokerError if this store is another broker's."""
    if note is not None and (note.cluster, note.broker) != (facts.cluster, facts.name):
        raise WrongBrokerError(
            f"this store holds the log of {note.title}, but {facts.title} is to be followed: give "
            "the address of the first, or an empty store.directory"
        )


def first_step(
    own: OwnLog,
    facts: BrokerFacts,
    note: Following | None,
    window: int,
    next_record: NextRecord,
    most: int = 1 << 62,
) -> Step:
    """What to do before, or with, the next connection. `window` counts the attempts, 0 at first.
    `next_record(offset, below)` is where the first record behind `offset` begins here. A number
    that is sent counts as an acknowledgement, so the first one is at most `most`. Raises
    WrongBrokerError."""
    check_identity(note, facts)
    if own.empty:
        if (own.end, own.file_size) == (facts.begin_offset, facts.file_size):
            return Ask(own.end, own.end)
        return BeginAt(facts.begin_offset, facts.file_size)
    if own.file_size != facts.file_size:
        raise WrongBrokerError(
            f"the log files here have {own.file_size} bytes, those of {facts.title} have "
            f"{facts.file_size}: give an empty store.directory"
        )
    low, high = max(own.begin, facts.begin_offset), min(own.end, facts.end_offset)
    if own.end < facts.begin_offset:
        return _set_aside(
            f"this log ends at {own.end}, and the broker's begins at {facts.begin_offset}: its "
            "retention has deleted what comes between",
            facts, note,
        )  # fmt: skip
    if high - low < HEAD_BYTES:
        return _set_aside(
            f"this log holds {own.begin}..{own.end}, the broker's {facts.begin_offset}.."
            f"{facts.end_offset}: they have nothing in common that can be compared",
            facts, note,
        )  # fmt: skip
    return Ask(_start(low, max(low, min(high, most)), window, next_record), high)


def after_difference(
    own: OwnLog,
    facts: BrokerFacts,
    note: Following | None,
    difference: LogsDifferError,
    read: Read,
) -> CutAt | SetAside | None:
    """What to do about a difference that the comparison found; None: compare more. Raises
    WrongBrokerError."""
    cut = record_start(read, difference.start, difference.position)
    if cut == difference.start:
        if cut > max(own.begin, facts.begin_offset):
            return None
        return _set_aside(
            "this log and the broker's differ from their first record on", facts, note
        )
    reason = (
        f"the broker's log ends at {facts.end_offset}"
        if cut == facts.end_offset
        else f"the broker has other messages from {cut} on"
    )
    _require_note(note, facts, f"{reason}, this log ends at {own.end}")
    return CutAt(cut, f"{reason}: it lost its tail, which this node had until {own.end}")


def record_start(read: Read, start: int, position: int) -> int:
    """Where the record of the own log that holds `position` begins; `position` itself if a record
    ends there. A record begins at `start`; the sizes lead from one to the next."""
    while True:
        size = int.from_bytes(read(start, 4))
        if size <= 0 or start + size > position:
            return start
        start += size


def _start(low: int, high: int, window: int, next_record: NextRecord) -> int:
    """A record's begin from which enough is compared. The log's own begin is one."""
    for size in WINDOWS[window:]:
        if high - size <= low:
            break
        start = next_record(high - size, high - HEAD_BYTES)
        if start is not None:
            return start
    return low


def _set_aside(reason: str, facts: BrokerFacts, note: Following | None) -> SetAside:
    _require_note(note, facts, reason)
    return SetAside(facts.begin_offset, reason)


def _require_note(note: Following | None, facts: BrokerFacts, reason: str) -> None:
    if note is None:
        raise WrongBrokerError(
            f"this store holds data that did not come from {facts.title} ({reason}): give an "
            "empty store.directory, or a copy of that broker's store"
        )
