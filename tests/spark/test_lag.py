"""What a listener makes of the progress of streams, and what a real Spark tells it."""

import json
import logging
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from helpers.running import Running
from tandemlog import Producer
from tandemlog.logs.job_errors import OptionError
from tandemlog.spark import lag as lag_module
from tandemlog.spark.cluster.cluster_errors import ClusterError
from tandemlog.spark.cluster.live_cluster import Cluster
from tandemlog.spark.cluster.queue_lag import QueueLag, cut_rows, lags_of
from tandemlog.spark.lag import LagListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "org.apache.spark.sql...python.PythonMicroBatchStreamWithTriggerAvailableNow@1a"
ID = uuid.UUID(int=1)
CONNECTION = {"endpoint": "127.0.0.1:1"}


def source(end: Any, latest: Any, description: str = OURS) -> dict[str, Any]:
    return {
        "description": description,
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


def progress(*sources: dict[str, Any], name: str | None = "copy") -> QueryProgressEvent:
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                "id": str(ID),
                "runId": str(ID),
                "name": name,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "batchId": 7,
                "batchDuration": 1,
                "stateOperators": [],
                "sources": list(sources),
                "sink": {"description": "x", "numOutputRows": 1},
            }
        )
    )


def text(listener: LagListener) -> str:
    registry = CollectorRegistry()
    registry.register(listener)
    return generate_latest(registry).decode()


def test_the_lag_is_what_was_there_less_what_is_read() -> None:
    end: dict[str, Any] = {"a": {"0": 40, "1": 38}, "@from": {"a": {"0": 1}}, "@first": True}
    latest = {"a": {"0": 90, "1": 38, "2": 5}}
    found = lags_of(3, OURS, json.dumps(end), json.dumps(latest))
    assert found == [QueueLag(3, "a", 0, 40, 50), QueueLag(3, "a", 1, 38, 0)]


@pytest.mark.parametrize(
    ("description", "end", "latest"),
    [
        ("KafkaV2[Subscribe[a]]", '{"a": {"0": 1}}', '{"a": {"0": 2}}'),
        (OURS, "None", "null"),
        (OURS, '{"a": {"0": 1}}', "null"),
        (OURS, '{"file": 3}', '{"file": 4}'),
        (OURS, '{"a": {"x": 1}}', '{"a": {"x": 1}}'),
        (OURS, "3", "5"),
    ],
)
def test_other_sources_have_none(description: str, end: str, latest: str) -> None:
    assert lags_of(0, description, end, latest) == []


def test_messages_that_were_cut_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    listener = LagListener(clock=lambda: 1_000.0)
    end: dict[str, Any] = {"a": {"0": 4}}
    cut = end | {"@cut": {"a": {"0": 6, "1": 2}}}
    for each in (end, cut, cut):
        listener.onQueryProgress(progress(source(each, {"a": {"0": 4}})))
    assert 'tandemlog_spark_cut_messages_total{query="copy"} 16.0' in text(listener).splitlines()
    assert "query=copy batch=7 cut_messages=8" in caplog.messages
    assert cut_rows("KafkaV2", json.dumps(cut)) == 0


def test_several_sources_and_queries(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    listener = LagListener(clock=lambda: 1_000.0)
    both = (
        source({"a": {"0": 1}}, {"a": {"0": 4}}),
        source({"a": {"0": 2}, "b": {"5": 3}}, {"a": {"0": 2}, "b": {"5": 10}}),
    )
    listener.onQueryProgress(progress(*both))
    [lag] = listener.lags()
    assert (lag.query, lag.batch, lag.messages, lag.seconds(1_000_000)) == ("copy", 7, 10, 0.0)
    lines = text(listener).splitlines()
    labels = 'query="copy",queue_id="0",source="0",topic="a"'
    assert f"tandemlog_spark_lag_messages{{{labels}}} 3.0" in lines
    labels = 'query="copy",queue_id="5",source="1",topic="b"'
    assert f"tandemlog_spark_lag_messages{{{labels}}} 7.0" in lines
    assert 'tandemlog_spark_last_batch_timestamp_seconds{query="copy"} 1000.0' in lines
    assert caplog.messages == [
        'query=copy batch=7 lag_messages=10 lag_seconds=0.0 queues={"a": {"0": 3}, "b": {"5": 7}}'
    ]
    listener.onQueryTerminated(QueryTerminatedEvent(ID, ID, None, None))
    assert listener.lags() == []
    assert "{" not in text(listener)


def test_only_the_queries_that_are_wanted() -> None:
    listener = LagListener(queries=["other", str(ID)])
    event = source({"a": {"0": 1}}, {"a": {"0": 4}})
    listener.onQueryProgress(progress(event))
    assert listener.lags() == []
    listener.onQueryProgress(progress(event, name=None))
    assert [each.query for each in listener.lags()] == [str(ID)]


def test_seconds_grow_until_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def store_times(_: Cluster, places: list[tuple[str, int, int]]) -> dict[Any, int]:
        asked.append(places)
        return {("a", 0, 1): 995_000}

    monkeypatch.setattr(Cluster, "store_times", store_times)
    now = [1_000.0]
    listener = LagListener(CONNECTION, clock=lambda: now[0])
    queues = {"a": {"0": 1, "1": 1, "2": 1}}, {"a": {"0": 4, "1": 9, "2": 1}}
    listener.onQueryProgress(progress(source(*queues)))
    # One request, what is furthest behind first; nothing is asked where nothing is behind.
    assert asked == [[("a", 1, 1), ("a", 0, 1)]]
    [lag] = listener.lags()
    assert [each.seconds(1_000_000) for each in lag.queues] == [5.0, None, 0.0]
    now[0] += 2
    ages = [line for line in text(listener).splitlines() if "lag_seconds{" in line]
    assert [line.rpartition(" ")[2] for line in ages] == ["7.0", "0.0"]
    listener.onQueryProgress(progress(source(queues[0], queues[0])))
    assert len(asked) == 1


def test_a_cluster_that_is_away_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> dict[Any, int]:
        raise ClusterError("nobody there")

    monkeypatch.setattr(Cluster, "store_times", away)
    listener = LagListener(CONNECTION)
    for _ in range(2):
        listener.onQueryProgress(progress(source({"a": {"0": 1}}, {"a": {"0": 4}})))
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warned == ["the lag in seconds is not known: nobody there"]
    assert listener.lags()[0].messages == 3


def test_wrong_options_of_the_connection() -> None:
    with pytest.raises(OptionError, match="endpoint is missing"):
        LagListener({})
    with pytest.raises(OptionError, match="is endpoint meant"):
        LagListener({"endpont": "a"})


def test_many_queues_have_few_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "MAX_QUEUES", 2)
    listener = LagListener()
    ends = {"a": dict.fromkeys(map(str, range(5)), 0)}
    latest = {"a": {str(number): number for number in range(5)}}
    listener.onQueryProgress(progress(source(ends, latest)))
    lines = [line for line in text(listener).splitlines() if "lag_messages{" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["4.0", "3.0", "3.0"]
    assert 'topic="other"' in lines[2]


@pytest.mark.spark
def test_in_spark(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    with Producer(cluster.endpoints) as producer:
        producer.send_many(topics[0], [b"x"] * 12, queues=[number % 4 for number in range(12)])
    seen, over = [], threading.Event()

    class Keeping(LagListener):
        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            super().onQueryProgress(event)
            seen.extend(self.lags())

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            super().onQueryTerminated(event)
            over.set()

    listener = Keeping({"endpoint": cluster.master.endpoint}, queries=[topics[0]])
    spark.streams.addListener(listener)
    try:
        (
            spark.readStream.format("tandemlog")
            .options(endpoint=cluster.master.endpoint, subscribe=topics[0], readFrom="master")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=8)
            .load()
            .writeStream.format("noop")
            .queryName(topics[0])
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        assert over.wait(120), "Spark did not tell of the end of the query"
    finally:
        spark.streams.removeListener(listener)
    assert [each.messages for each in seen] == [4, 0]
    assert [each.messages for each in seen[0].queues] == [1, 1, 1, 1]
    age = seen[0].seconds(seen[0].time_ms)
    assert age is not None
    assert 0 < age < 300
    assert seen[1].seconds(seen[1].time_ms) == 0.0
    assert listener.lags() == []
