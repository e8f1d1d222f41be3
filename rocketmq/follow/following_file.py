"""The file `tandemlog/following.json` of a store: whose log this is, and whether that is over.

broker       cluster and name of the broker whose log this store holds; the store follows no other
boot_ms      when that process of the broker began with whose log this one was compared last; in one
             process the log never gets shorter, so what was equal then is equal while it runs
taken_over   this node has become the master of the log in this epoch and follows no longer,
             whatever its configuration says; absent while it follows
"""

from dataclasses import dataclass
from pathlib import Path

from tandemlog.format.words import visible
from tandemlog_server.ha.errors import StateFileError
from tandemlog_server.storage.disk.checked_json import decode_checked, encode_checked
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.small_files import read_small, write_small
from tandemlog_server.storage.disk_errors import refusing
from tandemlog_server.storage.store_paths import StorePaths

FILE_NAME = "following.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The log's end and the wall clock (ms) when this node became the master."""

    end_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Following:
    """See the module."""

    cluster: str
    broker: str
    taken_over: TakenOver | None = None
    boot_ms: int = 0

    @property
    def title(self) -> str:
        return visible(f"broker {self.broker} of cluster {self.cluster}")


class FollowingFile:
    """The note of the store in `directory`. One thread calls."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self.path = StorePaths(directory).own / FILE_NAME
        self._files = files

    def load(self) -> Following | None:
        """None if this store has followed no broker yet. Raises StateFileError."""
        data = read_small(self._files, self.path)
        if data is None:
            return None
        try:
            document = decode_checked(data)
            over = document.get("taken_over")
            version = int(document["version"])
            following = Following(
                str(document["cluster"]),
                str(document["broker"]),
                None if over is None else TakenOver(int(over["end_offset"]), int(over["at_ms"])),
                int(document.get("boot_ms", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFileError(
                f"{self.path} cannot be read ({error}): restore it from a copy; deleting it "
                "makes this node forget which broker it follows, and that it has taken over"
            ) from error
        if version > VERSION:
            raise StateFileError(
                f"{self.path} is of version {version}, this program reads up to {VERSION}: start "
                "the newer one that wrote it"
            )
        return following

    def save(self, following: Following) -> None:
        """Durable on return. Raises DiskFullError or StoreReadOnlyError, and changes nothing."""
        over = following.taken_over
        document = {
            "version": VERSION,
            "cluster": following.cluster,
            "broker": following.broker,
            "boot_ms": following.boot_ms,
            "taken_over": None
            if over is None
            else {"end_offset": over.end_offset, "at_ms": over.at_ms},
        }
        with refusing(f"{self.path} cannot be written"):
            write_small(self._files, self.path, encode_checked(document))
