"""RocketMQ's own stores have nothing that the scrub would mend, but for entries of the index that a
broker which was killed has written twice."""

from pathlib import Path

import pytest

from fakes.clock import FakeClock
from helpers import golden
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.scrub.scrubber import Scrubber
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.recover import recover

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("golden_store", golden.stores(), ids=lambda each: each.label)
def test_a_round_finds_nothing(golden_store: golden.Golden, tmp_path: Path) -> None:
    copy = golden_store.copy(tmp_path)
    sizes = copy.sizes
    config = StoreConfig(
        directory=copy.store,
        queue_file_size=sizes["queue_file_size"],
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
    )
    recover(config)
    before = list(dump(config, "index"))
    store = MessageStore.open(config, clock=FakeClock())
    scrubber = Scrubber(
        store, lambda: (), tmp_path / "scrub.json", bytes_per_s=1 << 30, interval_ms=1 << 40
    )
    for _ in range(2):
        scrubber.begin_round()
        rounds = scrubber.plan.progress.rounds
        while scrubber.plan.progress.rounds == rounds:
            scrubber.step()
        store.reput.run_to()
    counts = scrubber.counts
    assert counts.bytes > 0
    assert (counts.damaged, counts.queues) == (0, 0)
    if golden_store.exact_index:
        assert counts.entries == 0
    store.close()
    keys = ("key_hash", "physical_offset")
    after = list(dump(config, "index"))
    assert {tuple(row[key] for key in keys) for row in after} == {
        tuple(row[key] for key in keys) for row in before
    }
    if golden_store.exact_index:
        assert after == before
