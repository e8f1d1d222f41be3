"""A stream's reader in the driver over a PlainCluster, and its offsets and partitions in short."""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from fakes.live_topics import PlainCluster
from tandemlog.spark.cluster.live_options import Use
from tandemlog.spark.cluster.option_reading import read_options
from tandemlog.spark.cluster.queue_offsets import Queue
from tandemlog.spark.cluster.resolve_offsets import Held
from tandemlog.spark.cluster.stream_offset import queues_in
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.live.live_stream import LiveStreamReader

Json = dict[str, Any]
ALL = ReadAllAvailable()


def held(first: int, end: int) -> Held:
    """What a queue with these offsets holds."""
    return Held(first, end, 1_000)


def cluster(**ends: int) -> PlainCluster:
    """cluster(t0=20): messages 0..20 in t/0; its nodes do not know the history of the log."""
    plain = PlainCluster({})
    plain.grow(**ends)
    return plain


def with_log(**ends: int) -> PlainCluster:
    """As cluster, with a history of one term."""
    plain = cluster(**ends)
    plain.begin_log(1, (1, 0))
    return plain


def reader(plain: PlainCluster, **options: str) -> LiveStreamReader:
    given = {"endpoint": "a", "topic": "t"} | options
    return LiveStreamReader(read_options(given, Use.STREAM), LIVE, plain)  # type: ignore[arg-type]


def t(*offsets: int) -> Json:
    """The offsets of the queues of topic t."""
    return {"t": {str(queue): offset for queue, offset in enumerate(offsets)}}


def only(offset: Json) -> Json:
    """The queues of an offset, without its other fields."""
    return queues_in(offset)


def spans(partitions: list[Any]) -> list[list[str]]:
    return [[str(span) for span in partition.spans] for partition in partitions]


def change_after_held(plain: PlainCluster, change: Callable[[], object]) -> None:
    """Have the cluster change right after it has said for the first time what its queues hold."""
    ask = plain.held

    def held_once(queues: Iterable[Queue] = ()) -> dict[Queue, Held]:
        plain.held = ask  # type: ignore[method-assign]
        holds = ask(queues)
        change()
        return holds

    plain.held = held_once  # type: ignore[method-assign]
