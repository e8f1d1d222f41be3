"""SQL92 filters: over the records of a batch, and in gets of a store that select a hundredth.

Records have bodies of 128 bytes, UNIQ_KEY, KEYS and TAGS, and beside these a number and a text. A
batch is what a get looks at: a MiB of records. The gets read 500,000 messages of one queue that is
in memory; the reference is the same gets without a filter. Since all of it is the work of one
thread, the first filter is also measured by that thread's processor time, which the load of a
machine changes less.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.figures import Figure, medians_in_turns
from benchmarks.harness.workload import BODY_BYTES, topics
from tandemlog.format.filter.expression import Condition
from tandemlog.format.filter.parser import parse
from tandemlog.format.filter.records import selected_records
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import TopicFrame, frame_message
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

RECORDS = 1_000
REQUESTS = 500
BATCH_BYTES = 1 << 20
ROUNDS = 20
RUNS = 5
GET_BYTES = 8 << 20
NUMBER = "amount < 10"
FILTERS: dict[str, tuple[str, float]] = {
    "a number": (NUMBER, 1_000_000),
    "a text": ("region = 'eu-1'", 1_000_000),
    "a part of a text": ("region LIKE '%-1'", 300_000),
    "four conditions": (
        "amount BETWEEN 10 AND 20 AND region IN ('eu-1', 'us-2') AND KEYS IS NOT NULL",
        500_000,
    ),
}


def a_request(number: int, chooser: random.Random) -> RecordBatch:
    """Messages of one queue, with numbers of 0 to 999."""
    [topic] = topics(1)
    frame = TopicFrame(topic, "127.0.0.1:0")
    framed = []
    for record in range(RECORDS):
        properties = encode_properties(
            {
                "UNIQ_KEY": f"7F0000010000{number:08X}{record:012X}",
                "KEYS": f"order-{number}-{record}",
                "TAGS": f"tag-{record % 10}",
                "amount": str(chooser.randrange(1_000)),
                "region": f"{chooser.choice(['eu', 'us', 'asia'])}-{chooser.randrange(9)}",
            }
        )
        body = chooser.randbytes(BODY_BYTES)
        framed.append(frame_message(frame, body, properties, 0, 1_700_000_000_000))
    return RecordBatch(
        records=b"".join(framed),
        sizes=np.array([len(each) for each in framed], np.uint32),
        queue_indexes=np.zeros(RECORDS, np.uint16),
        topics=(topic,),
        queue_topics=np.zeros(1, np.uint32),
        queue_ids=np.zeros(1, np.uint32),
    )


def filled(folder: Path) -> MessageStore:
    store = MessageStore.open(StoreConfig(folder))
    store.topics.create(TopicConfig(topics(1)[0], 1, 1), 0)
    store.start()
    chooser = random.Random(1)
    requests = [a_request(number, chooser) for number in range(50)]
    for number in range(REQUESTS):
        store.put(requests[number % len(requests)])
    store.reputed.wait(store.log.wrote.value, 60)
    return store


def batch_rate(
    store: MessageStore, condition: Condition, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Messages per second of `clock`, of one batch again and again."""
    result = store.reader.get(topics(1)[0], 0, 0, 0, BATCH_BYTES)
    sizes = result.sizes.astype(np.int64)
    positions = np.cumsum(sizes) - sizes
    began = clock()
    for _ in range(ROUNDS):
        selected_records(condition, result.records, positions, sizes)
    return ROUNDS * len(sizes) / (clock() - began)


def get_rate(store: MessageStore, condition: Condition | None) -> float:
    """Messages per second that gets look at, from the queue's begin to its end."""
    offset, end = 0, REQUESTS * RECORDS
    began = time.perf_counter()
    while offset < end:
        offset = store.reader.get(topics(1)[0], 0, offset, 0, GET_BYTES, (), condition).next_offset
    return end / (time.perf_counter() - began)


def run(folder: Path) -> list[Figure]:
    store = filled(folder / "store")
    try:
        over_batch = [partial(batch_rate, store, parse(text)) for text, _ in FILTERS.values()]
        by_thread = partial(batch_rate, store, parse(NUMBER), time.thread_time)
        *rates, thread_rate = medians_in_turns(RUNS, [*over_batch, by_thread])
        gets = [partial(get_rate, store, each) for each in (None, parse(NUMBER))]
        plain, filtered = medians_in_turns(RUNS, gets)
    finally:
        store.close()
    return [
        *(
            Figure(f"filter, {name}, over a batch", rate, "messages/s", goal)
            for (name, (_, goal)), rate in zip(FILTERS.items(), rates, strict=True)
        ),
        Figure("filter, a number, of processor time", thread_rate, "messages/s", 1_000_000),
        Figure("gets with a filter, of those without", filtered, "messages/s", 0.3, plain),
    ]
