"""Append and reput inside one process, 64 topics and 1,024 topics of 4 queues.

Everything a master does to a message but the network: checks, append, background flush, queues,
index, producers. The clock stops when the last record is dispatched, so what is reported can be
sustained.
"""

import json
import time
from pathlib import Path

from benchmarks.harness import Figure, best_of
from benchmarks.workload import QUEUES, batches, topics
from storage.config import StoreConfig
from storage.message_store import MessageStore
from storage.metadata import TopicConfig
from tandemlog.format.batch import RecordBatch

RECORDS = 1_000
REQUESTS = 1_500
MOST_BEHIND = 64 << 20
"""A put waits where reput is this many bytes behind, as back-pressure would have it."""


def rate(folder: Path, topic_count: int, made: list[RecordBatch]) -> float:
    """Messages per second through append and reput, from an empty store on."""
    store = MessageStore.open(StoreConfig(folder))
    table = {name: TopicConfig(name, QUEUES, QUEUES).encode() for name in topics(topic_count)}
    store.topics.replace_from_json(json.dumps({"topicConfigTable": table}).encode())
    store.start()
    try:
        for batch in made[:100]:
            store.append(batch)
        store.reputed.wait(store.log.wrote.value, 60)
        began = time.perf_counter()
        for number in range(REQUESTS):
            store.append(made[number % len(made)])
            behind = store.log.wrote.value - store.reputed.value
            if behind > MOST_BEHIND:
                store.reputed.wait(store.log.wrote.value - MOST_BEHIND // 2, 60)
        store.reputed.wait(store.log.wrote.value, 60)
        return REQUESTS * RECORDS / (time.perf_counter() - began)
    finally:
        store.close()


def run(folder: Path) -> list[Figure]:
    few, many = (batches(count, RECORDS, 100) for count in (64, 1_024))
    rounds = iter(range(1_000))
    rates = {
        "few": best_of(3, lambda: rate(folder / str(next(rounds)), 64, few)),
        "many": best_of(3, lambda: rate(folder / str(next(rounds)), 1_024, many)),
    }
    return [
        Figure("append + reput, 64 topics x 4 queues", rates["few"], "messages/s", goal=400_000),
        Figure(
            "append + reput, 1,024 topics x 4 queues",
            rates["many"],
            "messages/s",
            goal=0.9,
            reference=rates["few"],
        ),
    ]
