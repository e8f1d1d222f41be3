"""The Python examples of the pages for newcomers run, in the order of each page, on one cluster.

Kafka's client is not installed for the tests; a module with the few calls that the page makes
stands in for it.
"""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from documents.pages import DOCS, examples
from fakes.fake_cluster import ThreadedCluster, running_cluster

ENDPOINT = "127.0.0.1:10911"
PAGES = ("concepts.md", "from-kafka.md")


class KafkaRecord:
    def key(self) -> bytes:
        return b"customer-4"

    def value(self) -> bytes:
        return b"paid"

    def headers(self) -> list[tuple[str, bytes]]:
        return [("source", b"web")]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


class KafkaConsumer:
    """Confluent's: one record, and then nothing for the whole timeout."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.left = [KafkaRecord()]

    def subscribe(self, topics: list[str]) -> None:
        pass

    def poll(self, timeout: float) -> KafkaRecord | None:
        return self.left.pop() if self.left else None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedCluster]:
    kafka = types.ModuleType("confluent_kafka")
    kafka.Consumer = KafkaConsumer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "confluent_kafka", kafka)
    with running_cluster() as cluster:
        with tandemlog.Admin(cluster.endpoints) as admin:
            for topic in ("orders", "orders-eu"):
                admin.create_topic(topic)
        yield cluster


def run(page: Path, endpoint: str) -> int:
    found = examples(page)
    for example in found:
        code = compile(example.replace(ENDPOINT, endpoint), str(page), "exec")
        exec(code, {"__name__": "example"})
    return len(found)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(cluster: ThreadedCluster, page: str) -> None:
    assert run(DOCS / page, cluster.endpoints[0]) >= 1


def test_a_topic_of_kafka_is_moved(cluster: ThreadedCluster) -> None:
    run(DOCS / "from-kafka.md", cluster.endpoints[0])
    with (
        tandemlog.Consumer(cluster.endpoints) as consumer,
        consumer.follow("orders-eu", until_end=True) as stream,
    ):
        [message] = stream
    assert (message.body, message.keys, message.properties["source"]) == (
        b"paid",
        ["customer-4"],
        "web",
    )
    assert message.properties["__SHARDINGKEY"] == "customer-4"
    assert message.born_timestamp == 1_700_000_000_000
