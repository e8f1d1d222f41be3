"""A manifest: which objects make the log up to its end, and the history of that log.

    segments   [0 ─────── 700) [700 ── 1000)        [1300 ──── 1900)
                                            ▲ a gap: retention was quicker than the archiver
    history    term 1 from 0, term 4 from 700

Nothing is in an archive but what its newest manifest names. A segment's bytes are of one term and
of one commit log file. An entry may use less than all of its object: where a log was cut after that
was archived, the entry ends at the cut, and what the object has beyond it is of a dead branch.

States are the tables (state.py); of one with a prologue, a log that begins at its offset can be
restored whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import FormatError
from ..files.log_history import LogHistory, LogTerm, id_of, id_text
from .object_name import ManifestName, SegmentName, StateName, digest_of
from .packed_json import pack_json, unpack_json

FORMAT: Final = "tandemlog archive 1"


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment, of which the log has the bytes up to `end` (log offset).

    records              in the whole object
    first_ms, last_ms    the lowest and highest store time in it; zeros without records
    """

    name: SegmentName
    end: int
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def __post_init__(self) -> None:
        if not self.name.start < self.end <= self.name.end or self.records < 0:
            raise FormatError(f"{self.name.log_key} is used up to {self.end}")

    @property
    def start(self) -> int:
        return self.name.start

    @property
    def is_whole(self) -> bool:
        return self.end == self.name.end


@dataclass(frozen=True, slots=True)
class StateEntry:
    """Tables, when they were read (ms), and whether they come with a prologue."""

    name: StateName
    at_ms: int = 0
    has_prologue: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module.

    file_size    bytes of a commit log file
    history      of the log when this was written. Terms that begin beyond `end` are of what is
                 still to be archived: of a log that was cut, the first manifest has the new epoch
                 already, so it counts before the longer one of the old branch
    segments     by offset, no two with a byte in common; states: by log offset
    end          where the archived log ends
    revision     one more than that of the manifest which this one continues
    written_ms   when, by the clock of the node named `archiver`
    Raises FormatError for parts that contradict each other.
    """

    file_size: int
    history: LogHistory
    segments: tuple[SegmentEntry, ...] = ()
    states: tuple[StateEntry, ...] = ()
    end: int = 0
    revision: int = 0
    written_ms: int = 0
    archiver: str = ""

    def __post_init__(self) -> None:
        if self.file_size <= 0:
            raise FormatError(f"a manifest of a log with files of {self.file_size} bytes")
        before = 0
        for each in self.segments:
            if each.start < before:
                raise FormatError(f"{each.name.log_key} begins below {before}, where one ends")
            if each.start // self.file_size != (each.end - 1) // self.file_size:
                raise FormatError(f"{each.name.log_key} is of two files of {self.file_size} bytes")
            before = each.end
        if self.segments and self.end != before:
            raise FormatError(f"a manifest up to {self.end}, its last segment to {before}")

    @property
    def begin(self) -> int:
        """Where what can be read without a gap up to `end` begins (log offset)."""
        return self.spans()[-1][0] if self.segments else self.end

    @property
    def size(self) -> int:
        """Bytes of log in it."""
        return sum(each.end - each.start for each in self.segments)

    @property
    def epoch(self) -> int:
        return self.history.newest[0]

    def spans(self) -> tuple[tuple[int, int], ...]:
        """The parts of the log that are in it, (begin, end), with gaps between them."""
        found: list[tuple[int, int]] = []
        for each in self.segments:
            if found and found[-1][1] == each.start:
                found[-1] = (found[-1][0], each.end)
            else:
                found.append((each.start, each.end))
        return tuple(found)

    def covering(self, start: int, end: int) -> tuple[SegmentEntry, ...]:
        """The segments with bytes from `start` up to `end`."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].end <= start:
                low = middle + 1
            else:
                high = middle
        found = low
        while found < len(self.segments) and self.segments[found].start < end:
            found += 1
        return self.segments[low:found]

    def state_at(self, log_offset: int) -> StateEntry | None:
        """The newest tables of a log that ended at or below `log_offset`; of two with one offset
        and one time, those without a prologue, which have consumer offsets."""
        fitting = [each for each in self.states if each.name.log_offset <= log_offset]
        return max(
            fitting,
            key=lambda each: (each.name.log_offset, each.at_ms, not each.has_prologue),
            default=None,
        )

    def prologue_at(self, log_offset: int) -> StateEntry | None:
        """The tables with the prologue of a log that begins exactly there."""
        fitting = [
            each for each in self.states if each.has_prologue and each.name.log_offset == log_offset
        ]
        return max(fitting, key=lambda each: each.at_ms, default=None)

    def cut_at(self, end: int) -> "Manifest":
        """What of it is below `end`: segments, states, terms."""
        kept = tuple(
            each if each.end <= end else replace(each, end=end)
            for each in self.segments
            if each.start < end
        )
        terms = tuple(each for each in self.history.terms if each.start_offset < end)
        return replace(
            self,
            segments=kept,
            states=tuple(each for each in self.states if each.name.log_offset <= end),
            history=LogHistory(self.history.log_id, terms),
            end=kept[-1].end if kept else min(end, self.end),
        )

    def keys(self) -> Iterator[str]:
        """Of the objects that it names."""
        for segment in self.segments:
            yield segment.name.log_key
            yield segment.name.index_key
        for state in self.states:
            yield state.name.key


def encode_manifest(manifest: Manifest) -> tuple[ManifestName, bytes]:
    """Its name and its content."""
    content = pack_json(
        {
            "format": FORMAT,
            "file_size": manifest.file_size,
            "end": manifest.end,
            "revision": manifest.revision,
            "written_ms": manifest.written_ms,
            "archiver": manifest.archiver,
            "history": manifest.history.to_json(),
            "segments": [_segment_row(each) for each in manifest.segments],
            "states": [
                [each.name.log_offset, each.name.digest, each.at_ms, int(each.has_prologue)]
                for each in manifest.states
            ],
        }
    )
    digest = digest_of(content)
    return ManifestName(manifest.epoch, manifest.end, manifest.revision, digest), content


def decode_manifest(name: ManifestName, content: bytes) -> Manifest:
    """Raises FormatError unless it is the manifest of that name, whole."""
    if digest_of(content) != name.digest:
        raise FormatError(f"{name.key} has other content than its name says")
    value = unpack_json(content)
    try:
        if value["format"] != FORMAT:
            raise FormatError(f"{name.key} is of the format {str(value['format'])[:80]!r}")
        manifest = Manifest(
            file_size=_number(value["file_size"]),
            history=LogHistory.from_json(value["history"]),
            segments=tuple(_segment(row) for row in value["segments"]),
            states=tuple(_state(row) for row in value["states"]),
            end=_number(value["end"]),
            revision=_number(value["revision"]),
            written_ms=_number(value["written_ms"]),
            archiver=str(value["archiver"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name.key} is no manifest: {error!r}") from error
    inside = manifest.epoch, manifest.end, manifest.revision
    if inside != (name.epoch, name.end, name.revision):
        raise FormatError(f"{name.key} has epoch, end and revision {inside} in its content")
    return manifest


def merged_history(archived: LogHistory, now: LogHistory, end: int) -> LogHistory:
    """The history of a log of which a node has forgotten the oldest terms, with the files that
    retention deleted: `archived` has them, of a log that is archived up to `end`. A term from there
    on may have been cut before anything of it was archived, and then a later one begins where it
    did, or below. Raises FormatError if the two are no one history."""
    if not now.terms:
        return archived
    first = now.terms[0]
    known = {(each.epoch, each.start_offset): each.term_id for each in archived.terms}
    older = [
        each
        for each in archived.terms
        if each.epoch < first.epoch and each.start_offset < max(first.start_offset, end)
    ]
    newer = [
        LogTerm(each.epoch, each.start_offset, each.term_id or known.get(_place(each), 0))
        for each in now.terms
    ]
    return LogHistory(now.log_id or archived.log_id, (*older, *newer))


def _place(term: LogTerm) -> tuple[int, int]:
    return term.epoch, term.start_offset


def _segment_row(entry: SegmentEntry) -> list[int | str]:
    name = entry.name
    numbers = [name.start, name.end, entry.end, entry.records, entry.first_ms, entry.last_ms]
    return [*numbers, id_text(name.term_id), name.digest]


def _segment(row: Any) -> SegmentEntry:
    start, name_end, end, records, first_ms, last_ms, term_id, digest = row
    name = SegmentName(_number(start), _number(name_end), id_of(term_id), str(digest))
    return SegmentEntry(name, _number(end), _number(records), _number(first_ms), _number(last_ms))


def _state(row: Any) -> StateEntry:
    log_offset, digest, at_ms, has_prologue = row
    return StateEntry(
        StateName(_number(log_offset), str(digest)), _number(at_ms), bool(has_prologue)
    )


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value
