"""A broker's topic of batch queues (queue.type BatchCQ) gets no files here that keep a broker from
starting: ordinary records of such a topic are in a batch queue there, and in no queue here."""

from pathlib import Path

import pytest

from interop.rocketmq import StoreSizes, write_topics
from interop.store_client import served
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.audit import audit
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.interop

SIZES = StoreSizes(
    commit_log_file_size=262_144, queue_file_size=4_000, index_slots=200, index_entries=800
)


def test_a_broker_starts_on_the_store_afterwards(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_topics(
        store, {"Orders": 1, "Batches": 1}, attributes={"Batches": {"queue.type": "BatchCQ"}}
    )
    with served(store, SIZES, tmp_path / "before", "Orders") as (_, client):
        client.call("send", "Orders", 0, 5, "ordinary")
        client.call("send", "Batches", 0, 5, "single")
    config = StoreConfig(
        store,
        commit_log_file_size=SIZES.commit_log_file_size,
        queue_file_size=SIZES.queue_file_size,
        index_slots=SIZES.index_slots,
        index_entries=SIZES.index_entries,
    )
    assert [str(fault) for fault in verify(config).faults] == []
    assert audit(InProcess(1), store).holds
    for act in (recover, rebuild):
        act(config)
        assert not (store / "consumequeue" / "Batches").exists()
        report = verify(config)
        assert [str(fault) for fault in report.faults] == []
        assert any("batch queues" in note for note in report.notes)
    with served(store, SIZES, tmp_path / "after", "Orders") as (_, client):
        assert client.call("range", "Orders", 0) == {"min": 0, "max": 5}
        assert client.call("range", "Batches", 0)["max"] == 5
