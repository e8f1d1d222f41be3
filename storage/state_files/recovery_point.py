"""How far everything derived from the log is durable: where the next recovery may start.

    tandemlog/recovery.json, checked JSON:
    dispatched, flushed, confirmed, ..., queues and least {topic: {queue id: next}}

RocketMQ's checkpoint knows times, not positions, and nothing of single queues, so a recovery from
it alone starts at a file's beginning and cannot tell an empty queue from a lost one. This record
has the state at one moment:

    dispatched       every record below it is in the queues, fsynced; it is the start of a record
                     (index and producer table keep their own positions)
    flushed          the log is fsynced up to here; never cut below it because of one bad record
    confirmed        below it everything is confirmed, and at least what is dispatched; `dispatched`
                     and it may lie above `flushed`, and above the end of a log that lost its tail
    store_timestamp  of the newest record below `flushed`, ms
    index_tags       whether the index has entries of tags; None if it is not known
    queues           the offset that the next record of each queue gets at `dispatched`; -1 for a
                     queue that was damaged and not yet rebuilt
    least            the offset that such a queue gets at least
    whole            whether a record ends at `flushed`: a replica may have flushed a part of one
    offsets          whether config/consumerOffset.json holds offsets of groups: if it and its .bak
                     are gone, they are lost, and not none
    walked           where a record begins, of a log that was walked through up to there before it
                     was written here: the next recovery dispatches it, and looks for damage and for
                     the log's end from there on
    folds            of each fold the log offset of its snapshot, and up to which nothing in the log
                     has changed the state since

It only describes what is already on disk: it is written last and replaced atomically. If it is lost
or damaged, recovery takes longer, and a replica forgets what it knew to be confirmed beyond its
queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

VERSION = 1


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """See the module; offsets are positions in the log, those of `queues` queue offsets."""

    dispatched: int
    flushed: int
    confirmed: int
    store_timestamp: int = 0
    index_tags: bool | None = None
    queues: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    least: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    whole: bool = False
    offsets: bool = False
    folds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    walked: int = 0

    def encode(self) -> bytes:
        document = {
            "version": VERSION,
            "dispatched": self.dispatched,
            "flushed": self.flushed,
            "confirmed": self.confirmed,
            "store_timestamp": self.store_timestamp,
            "index_tags": self.index_tags,
            "queues": {topic: dict(ends) for topic, ends in self.queues.items()},
            "least": {topic: dict(ends) for topic, ends in self.least.items()},
            "whole": self.whole,
            "walked": self.walked,
            "offsets": self.offsets,
            "folds": {name: list(pair) for name, pair in self.folds.items()},
        }
        return encode_checked(document)


def decode(data: bytes) -> RecoveryPoint:
    """Raises ValueError for anything that `encode` has not written."""
    document = decode_checked(data)
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']}, this program knows {VERSION}")
    return RecoveryPoint(
        dispatched=document["dispatched"],
        flushed=document["flushed"],
        confirmed=document["confirmed"],
        store_timestamp=document["store_timestamp"],
        index_tags=document["index_tags"],
        queues=_numbers(document["queues"]),
        least=_numbers(document.get("least", {})),
        whole=document.get("whole", False),
        walked=document.get("walked", 0),
        offsets=document.get("offsets", False),
        folds={
            name: (int(snapshot), int(noted))
            for name, (snapshot, noted) in document.get("folds", {}).items()
        },
    )


def _numbers(document: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {
        topic: {int(queue_id): offset for queue_id, offset in queues.items()}
        for topic, queues in document.items()
    }


class RecoveryPointFile:
    """The record of one store on disk."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.note = ""
        # of the record on disk; the log above it may not be dropped: the queues on disk may lack it
        self.dispatched = 0

    def load(self) -> RecoveryPoint | None:
        """None if there is no file, or a damaged one, which `note` then describes."""
        data = read_small(self._files, self.path)
        if data is None:
            return None
        try:
            record = decode(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.note = f"{self.path} is damaged and ignored: {error}"
            return None
        self.dispatched = record.dispatched
        return record

    def save(self, record: RecoveryPoint) -> None:
        write_small(self._files, self.path, record.encode())
        self.dispatched = record.dispatched
