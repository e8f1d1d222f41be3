"""The store and its fake are the same to the replication."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.store_port_suite import Opened, StorePortSuite
from fakes.batches import Put, batch_of
from fakes.fake_store import FakeDisk, FakeStore
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.config import ConfirmSource, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig


class TestFakeStore(StorePortSuite):
    @pytest.fixture
    def opened(self) -> Opened:
        store = FakeStore(FakeDisk())

        def put() -> None:
            store.append(b"x" * 200)

        return Opened(store, put, lambda: FakeStore(FakeDisk()))


class TestMessageStore(StorePortSuite):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Opened]:
        stores: list[MessageStore] = []

        def open_store() -> MessageStore:
            config = StoreConfig(
                directory=tmp_path / str(len(stores)),
                commit_log_file_size=4096,
                queue_file_size=400,
                index_slots=16,
                index_entries=40,
                confirm=ConfirmSource.REPLICATION,
            )
            stores.append(MessageStore.open(config))
            return stores[-1]

        store = open_store()
        store.topics.create(TopicConfig("T", 4, 4), 1)

        def put() -> None:
            store.put(batch_of([Put("T", 1, b"x" * 100)]))

        def another() -> StorePort:
            return open_store()

        yield Opened(store, put, another)
        for each in stores:
            each.close()
