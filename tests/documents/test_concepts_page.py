"""The limits on docs/concepts.md are those of the program."""

import re

import pytest

from documents.pages import DOCS
from tandemlog.format.constants import (
    MAX_GROUP,
    MAX_QUERY,
    MAX_QUERY_ALL,
    MAX_TABLE,
    MAX_TOPIC_V1,
    client_topic_fault,
)
from tandemlog.format.record.producer_mark import MAX_PRODUCER_ID
from tandemlog.produce.framing import USER_PROPERTIES_LIMIT
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.storage.metadata.topics import MAX_QUEUES

ROWS = dict(
    re.findall(
        r"^\| (.+?) (?<!\\)\| (.+?) (?<!\\)\|",
        (DOCS / "concepts.md").read_text(encoding="utf-8").split("\n## Limits\n", 1)[1],
        re.MULTILINE,
    )
)
STORE = NodeConfig().store


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("name of a topic", MAX_TOPIC_V1),
        ("name of a group", MAX_GROUP),
        ("properties, with keys, tags and sharding key", USER_PROPERTIES_LIMIT),
        ("request of a producer", MAX_TABLE),
        ("request of a producer", STORE.max_batch_size >> 20),
        ("body", STORE.max_message_size >> 20),
        ("queues of a topic", MAX_QUEUES),
        ("queues of all topics", STORE.max_queues),
        ("topics", STORE.max_topics),
        ("groups", STORE.max_groups),
        ("committed offsets (groups times queues)", STORE.max_offset_rows),
        ("`producer_id`", MAX_PRODUCER_ID),
        ("requests of one producer that a retry can repeat safely", STORE.producer_sequences_kept),
        ("producers that a node remembers", STORE.producers_kept),
        ("messages of one query by key", MAX_QUERY),
        ("messages of one query by key", MAX_QUERY_ALL),
        ("long poll", NodeConfig().pull.max_wait_ms // 1000),
    ],
)
def test_the_limit_is_right(row: str, value: int) -> None:
    assert f"{value:,}" in re.findall(r"[\d,]*\d", ROWS[row]), ROWS[row]


def test_requests_in_flight() -> None:
    [most] = map(int, re.findall(r"\d+", ROWS["requests of one producer in flight"]))
    ProducerOptions(max_in_flight_requests=most)
    with pytest.raises(ValueError, match="max_in_flight_requests"):
        ProducerOptions(max_in_flight_requests=most + 1)


def test_names_have_no_dots() -> None:
    assert "no dot" in ROWS["name of a topic"]
    assert client_topic_fault("orders.eu") is not None
