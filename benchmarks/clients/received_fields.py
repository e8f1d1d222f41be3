"""What a message costs its reader: microseconds of processor time in memory, without a node.

    python -m benchmarks.clients.received_fields [ROUNDS]

The answer to a pull, with records of 1 KiB of body, a key, a tag, a property and a unique key, is
taken apart again and again, and its messages are delivered as by a stream, at last as to a member
of a group. Two versions of the client are compared by running this in turns with each.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tandemlog.cluster.pull_answer import parse_pull
from tandemlog.consume.following.delivery_cursor import DeliveryCursor
from tandemlog.consume.progress import Progress
from tandemlog.consume.reading.pulls import checked_parts
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.consume.statistics import ConsumerCounters
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


class Follower:
    """What a DeliveryCursor needs of one."""

    on_receive = None
    passage: Any = None
    interrupted = False

    def __init__(self, deadline: float | None) -> None:
        self.membership = None if deadline is None else self
        self.deadline = deadline
        self.progress = Progress()
        self.progress.restart((TOPIC, 0), 0)
        self.counters = ConsumerCounters()

    @property
    def must_stop(self) -> bool:
        return self.interrupted or self._out_of_time

    @property
    def _out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


def messages(encoded: bytes, deadline: float | None = None) -> Iterator[ReceivedMessage]:
    [(_, batch)] = checked_parts(parse_pull(encoded), [((TOPIC, 0), 0)], "memory")
    follower: Any = Follower(deadline)
    cursor = DeliveryCursor(follower)
    if not cursor.start((batch, follower.progress.turn(batch.queue))):
        raise RuntimeError("the batch is not delivered")
    yield from cursor.messages()


def nothing(encoded: bytes) -> None:
    for _ in messages(encoded):
        pass


def body(encoded: bytes) -> None:
    for message in messages(encoded):
        message.body  # noqa: B018


def body_as_member(encoded: bytes) -> None:
    for message in messages(encoded, time.monotonic() + 3600):
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
    ("body, as a member of a group", body_as_member),
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
