"""What a message costs its reader: microseconds of processor time in memory, without a node.

    python -m benchmarks.received_fields [ROUNDS]

The answer to a pull, with records of 1 KiB of body, a key, a tag, a property and a unique key, is
taken apart again and again, and its messages are delivered as by a stream. Two versions of the
client are compared by running this in turns with each.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from tandemlog.cluster.pull_answer import parse_pull
from tandemlog.consume.reading.pulls import checked_parts
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.format.record.record import encode_record
from tandemlog.memory import keep_freed_memory
from tandemlog.v1 import broker_pb2

COUNT = 6_800
"""As many as one answer of 8 MiB has."""
TOPIC = "peers-read"


def answer() -> bytes:
    """A PullResponse."""
    rng = np.random.default_rng(1)
    records = [
        encode_record(
            topic=TOPIC,
            body=rng.bytes(1024),
            properties={
                "UNIQ_KEY": f"{number:032X}",
                "KEYS": f"order-{number}",
                "TAGS": f"tag-{number % 10}",
                "region": "north",
            },
            queue_offset=number,
            physical_offset=number * 1300,
        )
        for number in range(COUNT)
    ]
    sizes = np.array([len(record) for record in records], "<u4").tobytes()
    part = broker_pb2.QueueRecords(
        status=broker_pb2.FOUND,
        next_offset=COUNT,
        max_offset=COUNT,
        count=COUNT,
        sizes=sizes,
        records=b"".join(records),
    )
    return broker_pb2.PullResponse(queues=[part]).SerializeToString()


def messages(encoded: bytes) -> Iterator[ReceivedMessage]:
    [(_, batch)] = checked_parts(parse_pull(encoded), [((TOPIC, 0), 0)], "memory")
    return iter(batch)


def nothing(encoded: bytes) -> None:
    for _ in messages(encoded):
        pass


def body(encoded: bytes) -> None:
    for message in messages(encoded):
        message.body  # noqa: B018


def keys_and_tags(encoded: bytes) -> None:
    for message in messages(encoded):
        message.keys, message.tags  # noqa: B018


def all_fields(encoded: bytes) -> None:
    for message in messages(encoded):
        message.body, message.keys, message.tags  # noqa: B018
        message.properties["region"]


def numbers(encoded: bytes) -> None:
    for message in messages(encoded):
        message.topic, message.queue_offset, message.store_timestamp  # noqa: B018


WAYS: tuple[tuple[str, Callable[[bytes], None]], ...] = (
    ("a loop, no field", nothing),
    ("body", body),
    ("keys, tags", keys_and_tags),
    ("body, keys, tags, a property", all_fields),
    ("topic, queue offset, store time", numbers),
)


def main() -> None:
    keep_freed_memory()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    encoded = answer()
    for name, way in WAYS:
        way(encoded)
        costs = []
        for _ in range(rounds):
            began = time.process_time()
            way(encoded)
            costs.append(1e6 * (time.process_time() - began) / COUNT)
        print(f"{name:<32}{statistics.median(costs):7.3f} us a message")


if __name__ == "__main__":
    main()
