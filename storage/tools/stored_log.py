"""A store that no node has open, as what a backup takes: opened under its lock, and recovered.

Only what was confirmed when the store was closed is taken: of a replica's log the noted confirm
offset, of any other its end.
"""

from collections.abc import Collection
from dataclasses import replace

from tandemlog.format.archive import state as names
from tandemlog.format.archive.state import ArchiveState
from tandemlog.format.files.log_history import LogHistory
from tandemlog.format.files.queue_unit import DelayLevels

from ..clock import Clock
from ..config import ConfirmSource, StoreConfig
from ..disk.file_system import FileSystem
from ..disk.real_file_system import RealFileSystem
from ..errors import DiskFullError
from ..message_store import MessageStore
from ..metadata.epoch_file import EpochFile
from ..progress import Progress
from ..store_paths import StorePaths
from .recover import noted_confirm


class StoredLog:
    """See the module. Opening raises what MessageStore.open does, and DiskFullError if not all
    could be dispatched. `close` it."""

    def __init__(
        self,
        config: StoreConfig,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> None:
        files = files if files is not None else RealFileSystem()
        paths = StorePaths(config.directory)
        epochs = EpochFile(paths.epochs, files)
        epochs.load()
        confirmed = noted_confirm(paths, files) if len(epochs.table) else None
        self._store = MessageStore.open(
            replace(config, confirm=ConfirmSource.LOCAL),
            files=files,
            clock=clock,
            progress=progress,
            confirmed_at_most=confirmed,
        )
        store = self._store
        if store.recovery.waits:
            store.close()
            raise DiskFullError(store.recovery.waits)
        end = store.reputed.value
        self.end = end if confirmed is None else max(min(end, confirmed), self.begin)
        self.name = str(config.directory)

    @property
    def history(self) -> LogHistory:
        return self._store.log_identity.history

    @property
    def begin(self) -> int:
        return self._store.log.min_offset

    @property
    def file_size(self) -> int:
        return self._store.log.file_size

    @property
    def delay_levels(self) -> DelayLevels:
        return DelayLevels(self._store.config.delay_levels)

    @property
    def in_batch_queues(self) -> Collection[str]:
        return self._store.topics.in_batch_queues

    def read(self, start: int, end: int) -> bytes:
        """Bytes of one file of the log. Raises OffsetOutOfRangeError, UnreadableError."""
        return bytes(self._store.log.view(start, end - start))

    def state(self, log_offset: int, *, prologue: bool) -> ArchiveState:
        store = self._store
        tables = {
            names.TOPICS: store.topics.to_json(),
            names.GROUPS: store.groups.to_json(),
            names.CONSUMER_OFFSETS: store.consumer_offsets.to_json(),
            names.GROUP_MEMBERS: store.group_members.to_json(),
            names.LOG_IDENTITY: store.log_identity.to_json(),
        }
        return ArchiveState(
            log_offset,
            {name: data.decode() for name, data in tables.items()},
            store.prologue(log_offset) if prologue else None,
            store.clock.now_ms(),
        )

    def close(self) -> None:
        self._store.close()
