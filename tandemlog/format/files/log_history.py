"""The history of a log: what a position in it is a position in.

    term      (1, 0, a3f0)     (4, 1000, 77b1)   (5, 1700, 09c2)
              ├────────────────┼─────────────────┼──────────▶ the log's end
    start     0                1000              1700

A queue offset is a number, and another log has other messages at the same numbers: after an unclean
failover, in a restored backup, in a new store. A log is named by its terms: which master
wrote which part. Each start of a master is a term, with an epoch above all that the log has and a
random `term_id`, since two masters may count to the same epoch where no election counts for them: a
store that was copied while it stood, and both copies started. The newest term names the log up to
where the next one begins; so (epoch, term_id) of it is all that an answer has to carry.

Two logs that share a term are equal up to the nearer of its two ends. Therefore a queue offset that
was read from the log with history A means the same in the log with history B exactly if the message
before it lies below that offset. What lies at or behind it is cut: there B continues with other
messages, and a reader continues with the first of them.

`log_id` names the log from its first byte on, for people and for programs that want to know that a
position is of another log altogether. It proves nothing here: a new slave learns it a moment after
its first bytes. 0 stands for an id that is not known: a term of an older version. Such a term is
known by its epoch and start alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import FormatError

NO_CUT: Final = 1 << 62
"""The end of a term that has not ended: nothing is cut."""
MAX_TERMS: Final = 4_096
"""That travel in one message: the newest ones."""


@dataclass(frozen=True, slots=True, order=True)
class LogTerm:
    """One master's part of a log, from `start_offset` (bytes) on."""

    epoch: int
    start_offset: int
    term_id: int = 0

    def is_same(self, other: "LogTerm") -> bool:
        """Whether both are one term; an id that is not known fits every id."""
        return (self.epoch, self.start_offset) == (other.epoch, other.start_offset) and _fits(
            self.term_id, other.term_id
        )


@dataclass(frozen=True, slots=True)
class LogHistory:
    """See the module. `terms`: oldest first, epoch and start grow strictly; empty if nothing is
    known of the log. Raises FormatError for other terms, or negative ones."""

    log_id: int = 0
    terms: tuple[LogTerm, ...] = ()

    def __post_init__(self) -> None:
        before = LogTerm(-1, -1)
        for term in self.terms:
            if term.epoch <= before.epoch or term.start_offset <= before.start_offset:
                raise FormatError(
                    f"a history in which epoch {term.epoch} from {term.start_offset} follows "
                    f"epoch {before.epoch} from {before.start_offset}"
                )
            before = term

    @property
    def newest(self) -> tuple[int, int]:
        """Epoch and term id of the newest term; zeros if there is none."""
        return (self.terms[-1].epoch, self.terms[-1].term_id) if self.terms else (0, 0)

    def end_of(self, epoch: int, term_id: int = 0) -> int | None:
        """Where the next term begins (log offset), NO_CUT for the newest; None without such a
        term."""
        for index in range(len(self.terms) - 1, -1, -1):
            term = self.terms[index]
            if term.epoch == epoch and _fits(term.term_id, term_id):
                return self._end(index)
        return None

    def up_to(self, epoch: int, term_id: int = 0) -> "LogHistory":
        """As it was in that term, which it has."""
        for index, term in enumerate(self.terms):
            if term.epoch == epoch and _fits(term.term_id, term_id):
                return LogHistory(self.log_id, self.terms[: index + 1])
        return self

    def cut_against(self, now: "LogHistory") -> int:
        """From which log offset on what was read from a log with this history is not in the log
        with the history `now`; NO_CUT if all of it is, 0 if the two share no term."""
        theirs = {(term.epoch, term.start_offset): each for each, term in enumerate(now.terms)}
        for index in range(len(self.terms) - 1, -1, -1):
            mine = self.terms[index]
            other = theirs.get((mine.epoch, mine.start_offset))
            if other is not None and mine.is_same(now.terms[other]):
                return min(self._end(index), now._end(other))
        return 0 if self.terms and now.terms else NO_CUT

    def _end(self, index: int) -> int:
        return self.terms[index + 1].start_offset if index + 1 < len(self.terms) else NO_CUT

    def to_json(self) -> dict[str, Any]:
        """As JSON has it; ids as text, since many readers of JSON have no such numbers."""
        return {
            "log_id": id_text(self.log_id),
            "terms": [[e.epoch, e.start_offset, id_text(e.term_id)] for e in self.terms],
        }

    @classmethod
    def from_json(cls, value: object) -> "LogHistory":
        """Raises FormatError for what `to_json` does not give."""
        try:
            assert isinstance(value, Mapping)
            rows: Iterable[Any] = value["terms"]
            terms = tuple(
                LogTerm(_number(epoch), _number(start), id_of(term_id))
                for epoch, start, term_id in rows
            )
            return cls(id_of(value["log_id"]), terms)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{str(value)[:80]!r} is no history of a log: {error!r}") from error


def id_text(value: int) -> str:
    """An id as text: 16 hexadecimal digits."""
    return f"{value:016x}"


def id_of(text: object) -> int:
    """Raises ValueError for a text that `id_text` does not give."""
    if not isinstance(text, str) or len(text) != 16:
        raise ValueError(f"{text!r} is no id of 16 hexadecimal digits")
    return int(text, 16)


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def _fits(one: int, other: int) -> bool:
    return one == other or not one or not other
