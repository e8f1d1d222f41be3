"""What a store was restored from: `tandemlog/restored.json`.

    version, source, begin, end, newest_epoch, files {base: print}, whole, records, topics

It is the plan of the restore first: a second run continues one that was interrupted, and keeps each
log file whose print (which objects, up to where) is still the same. `whole` becomes true as the
last step. From then on the file only tells where the store came from, and one thing that nothing
else in the folder knows: `newest_epoch`, the highest epoch of the log before it was cut at `end`.
The terms that begin beyond the cut are gone, but readers have seen them, and believe no master of
an epoch that is not above them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

VERSION = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """See the module. `begin`, `end`: log offsets; `source` for people, without secrets; `records`
    and `topics` are counted at the end."""

    source: str
    begin: int
    end: int
    newest_epoch: int = 0
    files: Mapping[int, str] = field(default_factory=dict)
    whole: bool = False
    records: int = 0
    topics: int = 0

    def is_same_plan(self, other: "Restored") -> bool:
        mine = self.begin, self.end, self.newest_epoch, self.files
        return mine == (other.begin, other.end, other.newest_epoch, other.files)

    def encode(self) -> bytes:
        return encode_checked(
            {
                "version": VERSION,
                "source": self.source,
                "begin": self.begin,
                "end": self.end,
                "newest_epoch": self.newest_epoch,
                "files": dict(self.files),
                "whole": self.whole,
                "records": self.records,
                "topics": self.topics,
            }
        )


def decode(data: bytes) -> Restored:
    """Raises ValueError for anything that `encode` has not written."""
    document = decode_checked(data)
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']}, this program knows {VERSION}")
    return Restored(
        source=str(document["source"]),
        begin=int(document["begin"]),
        end=int(document["end"]),
        newest_epoch=int(document["newest_epoch"]),
        files={int(base): str(text) for base, text in document["files"].items()},
        whole=bool(document["whole"]),
        records=int(document["records"]),
        topics=int(document["topics"]),
    )


class RestoredFile:
    """The file of one store; see the module."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files

    def load(self) -> Restored | None:
        """None if there is no file, or a damaged one: all of it is then restored again."""
        data = read_small(self._files, self.path)
        try:
            return None if data is None else decode(data)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self, value: Restored) -> None:
        """Durable on return. Raises OSError."""
        write_small(self._files, self.path, value.encode())
