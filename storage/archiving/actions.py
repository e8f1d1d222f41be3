"""What the archiver asks for, and what it is told: the words between archiver.py and its shell.

Archiver.next(view, now) ──▶ one action ──▶ the shell does it ──▶ Archiver.answer(answer, now)
"""

from dataclasses import dataclass

from tandemlog.format.archive.manifest import Manifest, SegmentEntry, StateEntry
from tandemlog.format.archive.object_name import ManifestName, SegmentName
from tandemlog.format.files.log_history import LogHistory


@dataclass(frozen=True, slots=True)
class ArchiverConfig:
    """Seconds and bytes.

    interval_s          between two rounds in which what is new is archived
    segment_bytes       of the largest segment; a larger record has one of its own
    look_interval_s     between two looks at the manifests: another node may archive too
    stale_s             longer than that after a look nothing is published
    grace_s             before what no manifest names any more is deleted
    take_over_s         that the archive may stand still before another node takes over
    retry_s             the longest wait after a failure
    """

    interval_s: float = 5.0
    segment_bytes: int = 64 << 20
    look_interval_s: float = 60.0
    stale_s: float = 1_800.0
    grace_s: float = 3_600.0
    take_over_s: float = 60.0
    retry_s: float = 60.0


@dataclass(frozen=True, slots=True)
class LogView:
    """The log of this node.

    begin, end   log offsets: what can be read, confirmed, durable here, and dispatched
    tables       the versions of its tables
    is_chosen    whether this node is the one to archive
    """

    history: LogHistory
    begin: int
    end: int
    file_size: int
    tables: tuple[int, ...] = ()
    is_chosen: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until` (`now`'s clock)."""

    until: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the newest manifest, and the names of all. Answer: Looked."""


@dataclass(frozen=True, slots=True)
class Prove:
    """Compare the last archived bytes before `end`, of this segment, with the log's own. Answer:
    Proved."""

    entry: SegmentEntry
    end: int


@dataclass(frozen=True, slots=True)
class Upload:
    """Put the whole records from `start` up to `limit` as one segment, its index behind it. The
    bytes of the segments `again` come first in it. Answer: Uploaded, NothingWhole, Differs,
    Damaged, or Gone."""

    start: int
    limit: int
    term_id: int
    again: tuple[SegmentName, ...] = ()


@dataclass(frozen=True, slots=True)
class TakeState:
    """Put the tables as they are now for a log that ends at `log_offset`; if `prologue`, with the
    prologue of a log that begins there, and without consumer offsets. Answer: StateTaken."""

    log_offset: int
    prologue: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Put this manifest. Answer: Published, or Gone if an object that only it names is not there
    any more."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """An object that no manifest names any more. Answer: Deleted."""

    key: str


Action = Wait | Look | Prove | Upload | TakeState | Publish | Delete


@dataclass(frozen=True, slots=True)
class Looked:
    """`newest`: None for an empty archive."""

    newest: tuple[ManifestName, Manifest] | None
    names: tuple[ManifestName, ...] = ()


@dataclass(frozen=True, slots=True)
class Proved:
    is_equal: bool


@dataclass(frozen=True, slots=True)
class Uploaded:
    entry: SegmentEntry


@dataclass(frozen=True, slots=True)
class NothingWhole:
    """No record is whole between start and limit."""


@dataclass(frozen=True, slots=True)
class Differs:
    """The log has other bytes now than the segments that were to be put again: those stay."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """The log's own bytes are damaged, or cannot be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The log has no such bytes any more: it was cut, or retention deleted them. Or the archive has
    lost what was put."""


@dataclass(frozen=True, slots=True)
class StateTaken:
    """`tables`: the versions that are in it."""

    entry: StateEntry
    tables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Published:
    name: ManifestName


@dataclass(frozen=True, slots=True)
class Deleted:
    pass


@dataclass(frozen=True, slots=True)
class Failed:
    """The object store did not answer, or refused: the action may have been done."""

    reason: str


Answer = (
    Looked
    | Proved
    | Uploaded
    | NothingWhole
    | Differs
    | Damaged
    | Gone
    | StateTaken
    | Published
    | Deleted
    | Failed
)
