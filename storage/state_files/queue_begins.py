"""The numbers that queues had reached before the log of this store begins.

    the cluster's log    [q0][q1]....[q9] expired |......................|
    this store's log                              |begin.................|    no record of q

A log that was copied from another node begins where that one began at the time. It contains nothing
about a queue whose records had all expired by then, so the queue would start at 0 again: consumers
at offset 10 would skip the next ten messages, and (queue, offset) would name another message than
before. So the other node sends the numbers with the log (prologue.py), and this store keeps them
here:

    tandemlog/queue-begins.json, checked JSON: version, log_offset, begins {topic: {queue id: n}}

`log_offset` is where the log began then. It will always begin there or later, so the numbers stay
valid, whatever is cut or expires. The first record of such a queue creates its files, which begin
with pre-blank units: from then on the files themselves show the number, to RocketMQ too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tandemlog.format.errors import FormatError
from tandemlog.format.files.names import names_a_folder
from tandemlog.format.files.queue_unit import UNIT_SIZE

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small
from ..queues.queue_table import MAX_QUEUE_ID, MAX_QUEUES

VERSION = 1
MAX_NUMBER = (1 << 62) // UNIT_SIZE

Numbers = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class QueueBegins:
    """The number of each queue's first record, in a log that begins at `log_offset`."""

    log_offset: int = 0
    begins: Numbers = field(default_factory=dict)

    def encode(self) -> bytes:
        document = {
            "version": VERSION,
            "log_offset": self.log_offset,
            "begins": {topic: dict(queues) for topic, queues in self.begins.items()},
        }
        return encode_checked(document)


def decode(data: bytes) -> QueueBegins:
    """Raises FormatError for anything that `encode` has not written, or impossible numbers."""
    try:
        document = decode_checked(data)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}, this program knows {VERSION}")
        begins = {
            topic: {int(queue_id): int(number) for queue_id, number in queues.items()}
            for topic, queues in document["begins"].items()
        }
        for topic, queues in begins.items():
            if not names_a_folder(topic):
                raise ValueError(f"topic {topic[:100]!r} is not a valid folder name")
            if min(queues, default=0) < 0 or max(queues, default=0) > MAX_QUEUE_ID:
                raise ValueError(f"topic {topic!r} has a queue id that is not 0..{MAX_QUEUE_ID}")
            numbers = queues.values()
            if min(numbers, default=0) < 0 or max(numbers, default=0) > MAX_NUMBER:
                raise ValueError(f"topic {topic!r} has a number that is not 0..{MAX_NUMBER}")
        if sum(map(len, begins.values())) > MAX_QUEUES:
            raise ValueError(f"more than {MAX_QUEUES} queues")
        return QueueBegins(int(document["log_offset"]), begins)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the numbers of queues cannot be read: {error}") from error


class QueueBeginsFile:
    """The file of one store; see the module."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.note = ""

    def load(self) -> QueueBegins | None:
        """None if there is no file, or a damaged one, which `note` then describes."""
        data = read_small(self._files, self.path)
        if data is None:
            return None
        try:
            return decode(data)
        except FormatError as error:
            self.note = (
                f"{self.path} is damaged and ignored: {error}; queues whose records had "
                "expired before this log began have their numbers from their files alone"
            )
            return None

    def save(self, value: QueueBegins) -> None:
        """Durable on return. Raises OSError."""
        write_small(self._files, self.path, value.encode())

    def remove(self) -> None:
        remove_small(self._files, self.path)
