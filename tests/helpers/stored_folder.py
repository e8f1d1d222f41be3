"""The folder of a small store, written now and then, for commands to work on."""

from pathlib import Path
from typing import Final

from fakes.batches import Put, batch_of
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

SIZES: Final = ("--index-slots=16", "--index-entries=40", "--queue-file-size=400")
"""Its sizes, for the command line."""


class Folder:
    """A store on a real disk, of which this test is the only user."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = StoreConfig(
            directory,
            commit_log_file_size=8192,
            queue_file_size=400,
            index_slots=16,
            index_entries=40,
        )
        self.count = 0

    def put(self, count: int, epoch: int = 0) -> None:
        store = MessageStore.open(self.config)
        try:
            if store.topics.get("T") is None:
                store.topics.create(TopicConfig("T", 4, 4), store.clock.now_ms())
            if epoch:
                store.become_slave()
                store.become_master(epoch)
            for _ in range(count):
                self.count += 1
                store.put(batch_of([Put("T", 0, b"%d" % self.count + b"." * 300)]))
            store.flush()
            store.reput.run_to()
            store.consumer_offsets.commit("G", "T", 0, self.count)
        finally:
            store.close()
