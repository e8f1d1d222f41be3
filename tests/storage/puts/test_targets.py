"""Which queues a put may name: those of the table of topics, each of them once."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog_server.storage.errors import BatchRefusedError


@pytest.mark.parametrize("known", [False, True])
def test_a_queue_that_stands_twice_in_a_batchs_table_is_refused(known: bool) -> None:
    bench = Bench()
    if known:
        bench.store.put(batch_of([Put("T", 1)]))
    before = bench.store.log.wrote.value
    twice = replace(
        batch_of([Put("T", 1), Put("T", 1)]),
        queue_indexes=np.array([0, 1], np.uint16),
        queue_topics=np.array([0, 0], np.uint32),
        queue_ids=np.array([1, 1], np.uint32),
    )
    with pytest.raises(BatchRefusedError, match="queue 1 of T is in the table twice") as refused:
        bench.store.put(twice)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert bench.store.log.wrote.value == before


def test_a_queue_that_the_topic_does_not_have_is_refused() -> None:
    bench = Bench()
    with pytest.raises(BatchRefusedError, match="there is no queue 99") as refused:
        bench.store.put(batch_of([Put("T", 0), Put("T", 99)]))
    assert refused.value.code == "UNKNOWN_QUEUE"
