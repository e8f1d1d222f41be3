"""What stores there are to make: a broker's settings and sizes, and what is sent to it.

    recipe = topics + settings + sizes + steps + how it ends (clean stop or kill -9)

A step is a function of the traffic; those here can be put together to any recipe.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.running import wait_until
from interop.rocketmq import StoreSizes
from interop.store_client import StoreClient

LONG_GROUP = "g" * 150
"""Its %RETRY% topic is above 127 bytes: brokers since 5.1 store its records in the layout V2."""
POP_GROUP = "p" * 119
"""What is popped and not taken comes again over %RETRY%group_topic, which is above 127 too."""
LMQ = ("%LMQ%device%1", "%LMQ%device%2")


SMALL = StoreSizes(
    commit_log_file_size=65_536, queue_file_size=2_000, index_slots=100, index_entries=400
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A running broker: what is sent to it goes through RocketMQ's client."""

    client: StoreClient
    store: Path

    def put(self, messages: list[dict[str, Any]], *, batch: bool = False) -> None:
        answer = self.client.call("put", _json({"messages": messages, "batch": batch}))
        assert set(answer["sent"]) == {"SEND_OK"}, answer


Step = Callable[[Traffic], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """`topics`: name and number of queues; `attributes`: of some of them, as topics.json has them.

    `settings` are lines of broker.conf. `unobserved`: topics that RocketMQ's client is not asked
    about, since it cannot pull them. `reopened`: RocketMQ is asked after it has opened the store
    anew; after a kill it always is.
    """

    topics: dict[str, int]
    steps: tuple[Step, ...]
    kill: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    sizes: StoreSizes = SMALL
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    unobserved: tuple[str, ...] = ()
    reopened: bool = False

    @property
    def observed_topics(self) -> dict[str, int]:
        return {topic: n for topic, n in self.topics.items() if topic not in self.unobserved}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---- steps


def fill(topic: str, queues: int, count: int, seed: int = 0) -> Step:
    """Ordinary messages of every kind: sizes, tags, keys, batches, a few delayed ones."""

    def step(traffic: Traffic) -> None:
        traffic.client.call("fill", topic, queues, count, seed)

    return step


def flood(topic: str, queues: int, threads: int = 3, seconds: float = 0.5) -> Step:
    """Go on sending, so that the end of the recipe comes at a busy moment."""

    def step(traffic: Traffic) -> None:
        traffic.client.call("flood", topic, queues, threads)
        time.sleep(seconds)

    return step


def settle(seconds: float) -> Step:
    """Let the broker's own timers do their work: deliver what is due, delete what is old."""

    def step(traffic: Traffic) -> None:
        time.sleep(seconds)

    return step


def transactions(topic: str, count: int) -> Step:
    def step(traffic: Traffic) -> None:
        traffic.client.call("transactions", topic, count)

    return step


def consume(topic: str, group: str, count: int, *, pop: bool = False) -> Step:
    """A push consumer that sends messages back: they come again over %RETRY%group."""

    def step(traffic: Traffic) -> None:
        taken = traffic.client.call("pop" if pop else "consume", topic, group, count, 60)
        assert taken["taken"] >= count, taken

    return step


def several_keys(topic: str, count: int = 40) -> Step:
    """Keys that are long, not ASCII, outside the BMP, and separated by more than one space."""

    def step(traffic: Traffic) -> None:
        traffic.put(
            [
                {
                    "topic": topic,
                    "queue_id": number % 2,
                    "body": f"body {number} ✓",
                    "tags": ("TagA", "a||b", "标签-日本", "😀")[number % 4],
                    "keys": f"k{number} 订单{number}  😀{number} {'x' * (number * 20)}",
                    "flag": -number,
                    "properties": {"p": "ü" * number or "-", "q": '=;\\"'},
                }
                for number in range(count)
            ]
        )

    return step


def bodies(topic: str, *lengths: int, repeat: bool = False) -> Step:
    """One message of each length; `repeat` ones are compressed by the client above 4 KiB."""

    def step(traffic: Traffic) -> None:
        traffic.put(
            [
                {"topic": topic, "queue_id": 0, "length": each, "repeat": repeat, "tags": "big"}
                for each in lengths
            ]
        )

    return step


def with_properties(topic: str, count: int, *, batch: bool = False, **properties: str) -> Step:
    """Messages with reserved properties: light queues, timers, a batch queue's batches."""

    def step(traffic: Traffic) -> None:
        traffic.put(
            [
                {
                    "topic": topic,
                    "queue_id": 0,
                    "body": f"{topic} {number}",
                    "tags": "TagA",
                    "keys": f"{topic}-{number}",
                    "properties": properties,
                }
                for number in range(count)
            ],
            batch=batch,
        )

    return step


def first_file_gone(traffic: Traffic) -> None:
    """Until the broker has deleted its first log file (see DELETING)."""
    first = traffic.store / "commitlog" / f"{0:020}"
    wait_until("the broker to delete its first log file", lambda: not first.exists(), 150)


DELETING: dict[str, object] = {
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "fileReservedTime": 0,
    "deleteCommitLogFilesInterval": 1,
    "cleanResourceInterval": 3_600_000,
}
"""A broker deletes all log files but the newest, once, a minute after its start."""


# ---- recipes

_TWO = {"Orders": 3, "Audit-1": 1}
_CLEAN = Recipe(_TWO, (fill("Orders", 3, 300), fill("Audit-1", 1, 300, 1), settle(2)))
_KILLED = Recipe(
    _TWO,
    (fill("Orders", 3, 200), fill("Audit-1", 1, 200, 1), settle(2), flood("Orders", 3)),
    kill=True,
)
_ALL_KINDS = (
    fill("Orders", 3, 150),
    several_keys("Orders"),
    bodies("Orders", 1, 4096, 5000, 30_000),
    bodies("Orders", 4097, 200_000, repeat=True),
    transactions("Orders", 9),
    fill("Audit-1", 1, 60, 1),
    consume("Audit-1", "GID_back", 40),
    settle(4),
)

RECIPES: dict[str, Recipe] = {
    "clean": _CLEAN,
    "killed": _KILLED,
    "kinds": Recipe(_TWO, _ALL_KINDS),
    "kinds-killed": Recipe(_TWO, (*_ALL_KINDS, flood("Orders", 3)), kill=True),
    "crc": replace(_CLEAN, settings={"enabledAppendPropCRC": "true"}),
    "crc-killed": replace(_KILLED, settings={"enabledAppendPropCRC": "true"}),
    "pool": replace(_CLEAN, settings={"transientStorePoolEnable": "true"}),
    "pool-killed": replace(_KILLED, settings={"transientStorePoolEnable": "true"}),
    "no-mmap": replace(_CLEAN, settings={"writeWithoutMmap": "true"}),
    "no-mmap-killed": replace(_KILLED, settings={"writeWithoutMmap": "true"}),
    "sync-killed": replace(_KILLED, settings={"flushDiskType": "SYNC_FLUSH"}),
    "ipv6": replace(_CLEAN, settings={"brokerIP1": "::1", "brokerIP2": "::1"}),
    "v2": Recipe(
        _TWO,
        (
            fill("Orders", 3, 80),
            fill("Audit-1", 1, 80, 1),
            consume("Audit-1", LONG_GROUP, 60),
            settle(4),
            fill("Orders", 3, 80, 2),
            settle(2),
        ),
    ),
    "many-topics": Recipe(
        {f"topic-{number:03}": 1 + number % 3 for number in range(120)},
        tuple(fill(f"topic-{number:03}", 1 + number % 3, 4, number) for number in range(120)),
    ),
    "lmq": Recipe(
        _TWO,
        (
            with_properties("Orders", 30, INNER_MULTI_DISPATCH=",".join(LMQ)),
            fill("Orders", 3, 60),
            with_properties("Audit-1", 30, INNER_MULTI_DISPATCH=LMQ[1]),
        ),
        settings={"enableLmq": "true", "enableMultiDispatch": "true"},
    ),
    "batch-queue": Recipe(
        {**_TWO, "Batches": 1},
        (
            fill("Orders", 3, 60),
            with_properties("Batches", 5, batch=True),
            with_properties("Batches", 9, batch=True),
            fill("Audit-1", 1, 60, 1),
            settle(2),
        ),
        attributes={"Batches": {"queue.type": "BatchCQ"}},
        unobserved=("Batches",),
    ),
    "features": Recipe(
        {"Orders": 2, "Audit-1": 1, "Batches": 1},
        (
            with_properties("Orders", 12, INNER_MULTI_DISPATCH=",".join(LMQ)),
            with_properties("Batches", 5, batch=True),
            with_properties("Audit-1", 8, INNER_MULTI_DISPATCH=LMQ[1], DELAY="1"),
            with_properties("Batches", 3, batch=True),
            with_properties("Orders", 8, INNER_MULTI_DISPATCH=LMQ[1]),
            with_properties("Audit-1", 4, DELAY="1"),
            settle(4),
            several_keys("Orders", 12),
        ),
        settings={"enableLmq": "true", "enableMultiDispatch": "true"},
        attributes={"Batches": {"queue.type": "BatchCQ"}},
        unobserved=("Batches",),
        sizes=StoreSizes(
            commit_log_file_size=16_384, queue_file_size=400, index_slots=50, index_entries=120
        ),
    ),
    "rocksdb": replace(_CLEAN, settings={"storeType": "defaultRocksDB"}),
    "timer": Recipe(
        _TWO,
        (
            fill("Orders", 3, 60),
            with_properties("Orders", 10, TIMER_DELAY_SEC="2"),
            with_properties("Audit-1", 10, TIMER_DELAY_SEC="3600"),
            settle(6),
        ),
        settings={"timerWheelEnable": "true"},
    ),
    "pop": Recipe(
        _TWO,
        (
            fill("Orders", 3, 60),
            fill("Audit-1", 1, 60, 1),
            consume("Audit-1", POP_GROUP, 40, pop=True),
            settle(20),
        ),
        # POP needs the timers, and so long it takes until the broker hands out queues
        settings={"timerWheelEnable": "true", "loadBalancePollNameServerInterval": 1000},
    ),
    "deleted": Recipe(
        _TWO,
        (
            fill("Orders", 3, 700),
            first_file_gone,
            settle(25),  # the queues' least offsets follow
            fill("Audit-1", 1, 100, 1),
            fill("Orders", 3, 60, 2),
            settle(2),
        ),
        settings=DELETING,
        reopened=True,
    ),
    "filter-bitmap": replace(
        _CLEAN,
        settings={
            "enableConsumeQueueExt": "true",
            "enableCalcFilterBitMap": "true",
            "enablePropertyFilter": "true",
        },
    ),
    "no-index": replace(_CLEAN, settings={"messageIndexEnable": "false"}),
    "own-delays": replace(_CLEAN, settings={"messageDelayLevel": "2s 3s"}),
    "compaction": Recipe(
        {**_TWO, "Compacted": 1},
        (fill("Orders", 3, 60), with_properties("Compacted", 20)),
        attributes={"Compacted": {"cleanup.policy": "COMPACTION"}},
        unobserved=("Compacted",),
    ),
    "large": Recipe(
        _TWO,
        (
            fill("Orders", 3, 20),
            bodies("Orders", 3_000_000, 4_100_000, 1, 4_190_000, 2_500_000),
            bodies("Orders", 4_000_000, repeat=True),
            fill("Audit-1", 1, 20, 1),
            settle(2),
        ),
        # or a pull ends before the first large message
        settings={"maxTransferBytesOnMessageInMemory": 1 << 26},
        sizes=StoreSizes(
            commit_log_file_size=6_000_000,
            queue_file_size=2_000,
            index_slots=100,
            index_entries=400,
        ),
    ),
}

SHIPPED: dict[str, tuple[str, ...]] = {
    "4.9.7": ("features",),
    "5.3.3": ("clean",),
    "5.5.0": ("clean", "killed", "features"),
}
"""Those whose archives are in tests/data, by version."""


def recipe(name: str) -> Recipe:
    """Raises KeyError for an unknown name."""
    return RECIPES[name]
