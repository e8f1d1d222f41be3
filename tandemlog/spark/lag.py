"""A listener that reports how far streams are behind, by queue, to the log and to Prometheus.

    Spark ──progress of a batch──▶ LagListener ──▶ one line of the log
                                     │   ▲
                      one pull for   │   │  store times of the next messages
                      each batch     ▼   │
                                    cluster        collect() ◀── Prometheus' registry

Spark has no metrics for a source in Python. The lag in messages comes from the progress alone; the
lag in seconds has to be asked of the cluster, with the options by which the source reaches it.

Spark calls listeners one after the other in a thread of its own, so a call must be short: if the
cluster does not answer, the lag of that batch has no seconds, and the query is not affected.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .cluster.cluster_errors import ClusterError
from .cluster.live_cluster import Cluster
from .cluster.live_options import Selection
from .cluster.option_reading import cluster_options
from .cluster.queue_lag import QueueLag, cut_rows, lags_of
from .cluster.queue_offsets import to_json

logger = logging.getLogger(__name__)

MAX_QUEUES: Final = 1_000
"""Queues of a query with series of their own; the others are summed up as topic `other`."""
_LOGGED_QUEUES: Final = 20
_QUICK: Final = {"requestTimeoutMs": "2000", "retryTimeoutMs": "2000"}
_LABELS: Final = ("query", "source", "topic", "queue_id")


@dataclass(frozen=True, slots=True)
class QueryLag:
    """Of one query after its last batch; `query` is its name, or else its id."""

    query: str
    batch: int
    time_ms: float
    queues: tuple[QueueLag, ...]

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.queues)

    def seconds(self, now_ms: float) -> float | None:
        """The largest of the queues; None if it is known of no queue."""
        ages = (each.seconds(now_ms) for each in self.queues)
        return max((age for age in ages if age is not None), default=None)


class LagListener(StreamingQueryListener, Collector):
    """For `spark.streams.addListener`, on a session of its own and on one of Connect.

    cluster   the options by which the source reaches its cluster ("endpoint", "tokenFile", ...);
              None: no seconds. Raises OptionError for options that cannot be
    queries   the names of the queries to listen to; None: all that read format("tandemlog")
    clock     seconds since 1970
    """

    def __init__(
        self,
        cluster: Mapping[str, str] | None = None,
        *,
        queries: Collection[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster: Cluster | None = None
        if cluster is not None:
            self._cluster = Cluster(cluster_options(_QUICK | dict(cluster)), Selection())
        self._queries = None if queries is None else frozenset(queries)
        self._clock = clock
        self._lock = threading.Lock()
        self._lags: dict[str, QueryLag] = {}
        self._cuts: dict[str, int] = {}
        self._silent = False

    def lags(self) -> list[QueryLag]:
        """Of the queries that run, by name."""
        with self._lock:
            return sorted(self._lags.values(), key=lambda each: each.query)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing: the first batch has the lag."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        if self._queries is not None and query not in self._queries:
            return
        queues = [
            lag
            for number, each in enumerate(progress.sources)
            for lag in lags_of(number, each.description, each.endOffset, each.latestOffset)
        ]
        if not queues:
            return
        cut = sum(cut_rows(each.description, each.endOffset) for each in progress.sources)
        if cut:
            logger.warning("query=%s batch=%d cut_messages=%d", query, progress.batchId, cut)
        lag = QueryLag(
            query, progress.batchId, self._clock() * 1000, tuple(self._with_times(queues))
        )
        key = str(progress.id)
        with self._lock:
            self._lags[key] = lag
            self._cuts[key] = self._cuts.get(key, 0) + cut
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", _line(lag))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing: the lag stays 0, or less than a batch waits for."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._lags.pop(str(event.id), None)
            self._cuts.pop(str(event.id), None)

    def collect(self) -> Iterator[Metric]:
        """For a scrape of Prometheus. The seconds grow between two batches."""
        messages = GaugeMetricFamily(
            "tandemlog_spark_lag_messages",
            "Messages of the queue that were there when the last batch began and are not read yet.",
            labels=_LABELS,
        )
        seconds = GaugeMetricFamily(
            "tandemlog_spark_lag_seconds",
            "Age of the oldest of them: now minus its store time; 0 without lag.",
            labels=_LABELS,
        )
        batches = GaugeMetricFamily(
            "tandemlog_spark_last_batch_timestamp_seconds",
            "When the last batch of the query was finished, in seconds since 1970.",
            labels=("query",),
        )
        now_ms = self._clock() * 1000
        for lag in self.lags():
            batches.add_metric((lag.query,), lag.time_ms / 1000)
            for labels, count, age in _series(lag, now_ms):
                messages.add_metric((lag.query, *labels), count)
                if age is not None:
                    seconds.add_metric((lag.query, *labels), age)
        cuts = CounterMetricFamily(
            "tandemlog_spark_cut_messages",
            "Messages that the query has read and that are not in the log any more.",
            labels=("query",),
        )
        with self._lock:
            for key, lag in self._lags.items():
                cuts.add_metric((lag.query,), self._cuts.get(key, 0))
        yield from (messages, seconds, batches, cuts)

    def _with_times(self, queues: list[QueueLag]) -> Iterable[QueueLag]:
        """The same, with the store time of the next message if there is one."""
        behind = sorted((each for each in queues if each.messages), key=lambda each: -each.messages)
        if self._cluster is None or not behind:
            return queues
        try:
            times = self._cluster.store_times(
                [(each.topic, each.queue_id, each.position) for each in behind]
            )
        except ClusterError as error:
            if not self._silent:
                logger.warning("the lag in seconds is not known: %s", error)
            self._silent = True
            return queues
        self._silent = False
        return [
            replace(each, oldest_ms=times.get((each.topic, each.queue_id, each.position)))
            for each in queues
        ]


def _line(lag: QueryLag) -> str:
    """A line of the log."""
    seconds = lag.seconds(lag.time_ms)
    worst = sorted(lag.queues, key=lambda each: -each.messages)[:_LOGGED_QUEUES]
    # of a queue that several sources read, the largest lag
    queues = {(each.topic, each.queue_id): each.messages for each in worst[::-1] if each.messages}
    return (
        f"query={lag.query} batch={lag.batch} lag_messages={lag.messages} "
        f"lag_seconds={'?' if seconds is None else f'{seconds:.1f}'} "
        f"queues={json.dumps(to_json(queues))}"
    )


def _series(
    lag: QueryLag, now_ms: float
) -> Iterator[tuple[tuple[str, str, str], int, float | None]]:
    """Labels, messages and seconds of each queue; of those beyond MAX_QUEUES together."""
    queues = sorted(lag.queues, key=lambda each: -each.messages)
    for each in queues[:MAX_QUEUES]:
        labels = str(each.source), each.topic, str(each.queue_id)
        yield labels, each.messages, each.seconds(now_ms)
    others = QueryLag(lag.query, lag.batch, lag.time_ms, tuple(queues[MAX_QUEUES:]))
    if others.queues:
        yield ("", "other", ""), others.messages, others.seconds(now_ms)


__all__ = ["LagListener", "QueryLag", "QueueLag"]
