"""What opening a store found, cut and rebuilt: for the log file, for people, for tests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tandemlog.format.words import counted

from ..log.log_scanner import Damage
from .analysis import Analysis

MAX_LINES = 10


class Stretch(Protocol):
    """Log bytes start .. end-1."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


@dataclass(slots=True)
class RecoveryReport:
    """Offsets are positions in the log. Empty lists and zeros mean that nothing was wrong.

    clean_stop         the last process closed the store (no abort file)
    foreign            the store has no recovery point of ours: every record was looked at
    producers_anew     all that is known of producers was read from the log
    scanned_from       the log was checked from here to its end
    cut_bytes          bytes behind the last whole record that were not zero, now gone
    cut_reason         why the log ends there
    cut_saved          the file that keeps them, where whole records were among them
    damages            holes below what was durable: nothing behind them was cut
    queues_cut         queues of which units were taken away, to be rebuilt from the log
    queues_rebuilt     queues rebuilt from the log alone, with the reason
    index              what had to be done about the index
    dispatched         records dispatched to queues, index and producers
    waits              what a full disk had no room for; it continues when there is space again
    offsets_clamped    consumer offsets that lay above the end of their queue
    doubt              why bytes that counted as held here may be missing (session_file.py)
    """

    clean_stop: bool = True
    foreign: bool = False
    producers_anew: bool = False
    log_start: int = 0
    log_end: int = 0
    scanned_from: int = 0
    scanned_records: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    cut_saved: str = ""
    damages: list[Damage] = field(default_factory=list)
    queues: int = 0
    queues_cut: list[str] = field(default_factory=list)
    queues_rebuilt: dict[str, str] = field(default_factory=dict)
    index: list[str] = field(default_factory=list)
    dispatched: int = 0
    confirmed: int = 0
    waits: str = ""
    offsets_clamped: int = 0
    doubt: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def of(cls, analysis: Analysis) -> "RecoveryReport":
        """What is known once the log is examined, and before anything is changed."""
        report = cls(
            clean_stop=analysis.clean,
            foreign=analysis.point is None,
            log_start=analysis.log_start,
            log_end=analysis.log_end,
            scanned_from=analysis.scanned_from,
            scanned_records=analysis.scanned_records,
            damages=analysis.damages,
            notes=analysis.notes,
        )
        if analysis.remains is not None:
            report.cut_bytes = analysis.remains.end - analysis.log_end
            report.cut_reason = analysis.reason
        return report

    def add_damages(self, damages: Iterable[Damage]) -> None:
        """Those that are not known yet."""
        known = {damage.start for damage in self.damages}
        self.damages += [damage for damage in damages if damage.start not in known]

    def mended(self, stretches: Iterable[Stretch]) -> None:
        """These bytes of the log are right again."""
        for each in stretches:
            self.damages = [
                damage
                for damage in self.damages
                if damage.end <= each.start or each.end <= damage.start
            ]

    def lines(self) -> Iterator[str]:
        """One sentence a finding."""
        stop = "was closed cleanly" if self.clean_stop else "was not closed cleanly"
        yield f"the store {stop}; the log holds {self.log_start}..{self.log_end}"
        if self.foreign:
            yield "it has no recovery point of tandemlog, so the whole log was read"
        records = counted(self.scanned_records, "record")
        yield f"checked {records} from offset {self.scanned_from} on"
        for damage in self.damages:
            yield f"damaged: {damage}; the records after it are kept"
        if self.cut_bytes:
            saved = f", kept in {self.cut_saved}" if self.cut_saved else ""
            cut = counted(self.cut_bytes, "byte")
            yield f"cut {cut} at offset {self.log_end}: {self.cut_reason}{saved}"
        yield from _some("queue cut", self.queues_cut)
        rebuilt = [f"{queue}: {reason}" for queue, reason in self.queues_rebuilt.items()]
        yield from _some("queue rebuilt", rebuilt)
        for finding in self.index:
            yield f"index: {finding}"
        queues = counted(self.queues, "queue")
        yield f"dispatched {counted(self.dispatched, 'record')} to {queues}"
        if self.waits:
            yield self.waits
        if self.offsets_clamped:
            offsets = counted(self.offsets_clamped, "consumer offset")
            yield f"lowered {offsets} to the end of their queue"
        if self.doubt:
            yield f"the messages acknowledged last may be missing: {self.doubt}"
        yield from self.notes


def _some(what: str, findings: list[str]) -> Iterator[str]:
    """The first few of many."""
    for finding in findings[:MAX_LINES]:
        yield f"{what}: {finding}"
    if len(findings) > MAX_LINES:
        yield f"{what}: {len(findings) - MAX_LINES} more"
