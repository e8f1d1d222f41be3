"""RocketMQ's `checkpoint`, read and written in place (format text, section 4.1).

It says up to which store time the log, the queues and the index are durable, so a Java broker that
takes the store over recovers from there. A time or offset is written only after the data that it
covers is fsynced; the broker's own timer does not wait for that, and loses queue units in a power
cut.

The six longs are in the first sector, so a write is either complete or has no effect. A missing or
short file counts as zeros: recovery then starts at the beginning of the log.
"""

from pathlib import Path

from tandemlog.format.files.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small


class StoreCheckpoint:
    """The checkpoint file of one store; one thread writes."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.note = ""
        self.value = Checkpoint()

    def load(self) -> Checkpoint:
        """What the file says; `note` says if it is missing or short."""
        data = read_small(self._files, self.path)
        if data is None:
            self.note = f"{self.path} is missing: nothing is known to be durable"
        elif len(data) < CHECKPOINT_SIZE:
            self.note = f"{self.path} has {len(data)} bytes, not {CHECKPOINT_SIZE}"
        self.value = decode_checkpoint(data or b"")
        return self.value

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable on return; nothing is written where nothing changed."""
        status = self._files.status(self.path)
        if status is None or status.size != CHECKPOINT_SIZE:
            write_small(self._files, self.path, checkpoint.encode())
        elif checkpoint != self.value:
            handle = self._files.open(self.path)
            try:
                self._files.pwrite(handle, checkpoint.encode(), 0)
                self._files.fdatasync(handle)
            finally:
                self._files.close(handle)
        self.value = checkpoint
