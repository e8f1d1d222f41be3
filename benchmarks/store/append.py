"""Append and reput inside one process: 64 and 1,024 topics of 4 queues, 4,096 topics of 8 queues.

Everything that a master does with a message except the network: checks, append, background flush,
queues, index, producers, checkpoints. The queues and their files exist before the clock starts; it
stops when the last record is dispatched, so the rate can be sustained.
"""

import json
import shutil
import time
from functools import partial
from pathlib import Path

from benchmarks.harness.figures import Figure, bring_in_memory, medians_in_turns
from benchmarks.harness.workload import QUEUES, batches, topics
from tandemlog.format.record.batch import RecordBatch
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

FEW, MANY, MOST = SHAPES = (64, QUEUES), (1_024, QUEUES), (4_096, 8)
"""Topics, and queues of each."""
RECORDS = 1_000
REQUESTS = 4_000
RUNS = 5


def rate(folder: Path, shape: tuple[int, int], requests: list[RecordBatch]) -> float:
    """Messages per second through append and reput, from an empty store on."""
    topic_count, queues = shape
    store = MessageStore.open(StoreConfig(folder))
    table = {name: TopicConfig(name, queues, queues).encode() for name in topics(topic_count)}
    store.topics.replace_from_json(json.dumps({"topicConfigTable": table}).encode())
    store.start()
    try:
        for batch in requests[:100]:
            store.put(batch)
        store.reputed.wait(store.log.wrote.value, 60)
        store.persist()
        began = time.perf_counter()
        for number in range(REQUESTS):
            store.put(requests[number % len(requests)])
        store.reputed.wait(store.log.wrote.value, 60)
        return REQUESTS * RECORDS / (time.perf_counter() - began)
    finally:
        store.close()


def run(folder: Path) -> list[Figure]:
    """All in turns, each with an empty disk and free memory."""
    requests = {
        (count, queues): batches(count, RECORDS, 100, queues=queues) for count, queues in SHAPES
    }

    def once(shape: tuple[int, int]) -> float:
        bring_in_memory(folder, 2 << 30)
        messages_per_s = rate(folder / "store", shape, requests[shape])
        shutil.rmtree(folder / "store")
        return messages_per_s

    few, many, most = medians_in_turns(RUNS, [partial(once, shape) for shape in SHAPES])
    name = "append + reput, {:,} topics x {} queues"
    return [
        Figure(name.format(*FEW), few, "messages/s", goal=400_000),
        Figure(name.format(*MANY), many, "messages/s", goal=0.93, reference=few),
        Figure(name.format(*MOST), most, "messages/s", goal=0.85, reference=few),
    ]
