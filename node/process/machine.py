"""What a node stands on: the files of its disk and the clock of its machine.

A process has its own machine. A cluster inside a test has disks in memory and a date that the test
moves (tandemlog/testing).
"""

import logging
from dataclasses import dataclass, field

from tandemlog_server.storage.clock import Clock, SystemClock
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.message_store import MessageStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """See the module."""

    files: FileSystem = field(default_factory=RealFileSystem)
    clock: Clock = field(default_factory=SystemClock)

    def open_store(self, config: StoreConfig) -> MessageStore:
        """See MessageStore.open. A folder that is new is said: its name may be mistyped."""
        try:
            new = not self.files.listdir(config.directory)
        except FileNotFoundError:
            new = True
        if new:
            logger.info(
                "the store's folder is new or empty, this node begins without messages: "
                "store.directory=%s",
                config.directory,
            )
        return MessageStore.open(config, files=self.files, clock=self.clock)
