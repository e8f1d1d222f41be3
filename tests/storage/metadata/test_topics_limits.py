"""What others can make grow on a node has a bound, and what is over it is refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.stores import CONFIG, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.metadata.consumer_offsets import ConsumerOffsets
from tandemlog_server.storage.metadata.topics import (
    MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES,
    GroupTable,
    MetadataError,
    TopicConfig,
    TopicTable,
)
from tandemlog_server.storage.queues.queue_table import LEAST_SLOTS, SLOTS_PER_QUEUE, QueueTable


def files() -> MemoryFiles:
    made = MemoryFiles()
    made.make_directory(Path("/store/config"))
    return made


def topics(**limits: int) -> TopicTable:
    return TopicTable(Path("/store/config/topics.json"), files(), **limits)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"a": "x" * MAX_ATTRIBUTE_BYTES}, "bytes of attributes: 16385, the most is 16384"),
        ({"a" * 256: ""}, "key: 256, the most is 255"),
        ({str(n): "" for n in range(MAX_ATTRIBUTES + 1)}, "attributes: 65, the most is 64"),
        ({"é" * 200: ""}, "key: 400"),
    ],
)
def test_attributes_above_a_limit_are_refused(attributes: dict[str, str], words: str) -> None:
    table = topics()
    with pytest.raises(MetadataError, match=words) as refused:
        table.create(TopicConfig("T", attributes=attributes), 1)
    assert (refused.value.code, refused.value.field) == ("INVALID_ARGUMENT", "attributes")
    assert table.table == {}


def test_topics_and_their_queues_are_bounded_for_the_node() -> None:
    table = topics(max_topics=2, max_queues=20)
    table.create(TopicConfig("A", 8, 8), 1)
    with pytest.raises(MetadataError, match="8 queues and would have 21, max_queues is 20"):
        table.create(TopicConfig("B", 13, 2), 1)
    table.create(TopicConfig("B", 12, 12), 1)
    with pytest.raises(MetadataError, match="2 topics, max_topics is 2"):
        table.create(TopicConfig("C", 1, 1), 1)
    with pytest.raises(MetadataError, match="would have 21"):
        table.create(TopicConfig("A", 9, 9), 1, update=True)
    table.create(TopicConfig("A", 4, 4), 1, update=True)
    table.create(TopicConfig("A", 8, 2), 1, update=True)


def test_a_table_that_is_above_the_limits_is_kept_as_it_is() -> None:
    master, slave = topics(), topics(max_topics=1, max_queues=1)
    for name in "ABC":
        master.create(TopicConfig(name, 8, 8), 1)
    slave.replace_from_json(master.to_json())
    assert slave.names() == ["A", "B", "C"]
    slave.create(TopicConfig("A", 4, 4), 1, update=True)


def test_what_a_broker_has_made_can_be_changed_whatever_our_limits_are() -> None:
    name = "t" * 200
    attributes = {str(n): "" for n in range(MAX_ATTRIBUTES + 1)}
    bean = {**TopicConfig(name, 8, 0, attributes=attributes).encode()}
    table = topics()
    table.replace_from_json(json.dumps({"topicConfigTable": {name: bean}}).encode())
    held = table.table[name]
    changed = table.create(replace(held, perm=4), 1, update=True)
    assert (changed.name, changed.write_queues, changed.perm) == (name, 0, 4)
    with pytest.raises(MetadataError, match="attributes: 66, the most is 64"):
        table.create(replace(held, attributes={**attributes, "x": ""}), 1, update=True)
    with pytest.raises(MetadataError, match="200 characters"):
        topics().create(held, 1, update=True)


def test_a_group_that_has_offsets_is_not_new() -> None:
    name = "g" * 134
    table = GroupTable(Path("/store/config/g.json"), files())
    with pytest.raises(MetadataError, match="134 characters, the limit is 120"):
        table.ensure(name, 1)
    assert table.ensure(name, 1, has_offsets=True)
    offsets = ConsumerOffsets(Path("/store/config/o.json"), files())
    assert not offsets.has_group(name)
    offsets.commit(name, "T", 0, 7)
    assert offsets.has_group(name)


def test_groups_are_bounded() -> None:
    table = GroupTable(Path("/store/config/g.json"), files(), max_groups=1)
    assert table.ensure("one", 1)
    assert not table.ensure("one", 1)
    with pytest.raises(MetadataError, match="max_groups is 1"):
        table.ensure("two", 1)


def test_rows_of_consumer_offsets_are_bounded_and_those_there_can_be_moved() -> None:
    table = ConsumerOffsets(Path("/store/config/o.json"), files(), max_rows=2)
    table.commit("g", "T", 0, 1)
    table.commit("g", "T", 1, 1)
    with pytest.raises(MetadataError, match="max_offset_rows is 2"):
        table.commit("h", "T", 0, 1)
    table.commit("g", "T", 1, 7)
    assert table.offset("g", "T", 1) == 7
    assert table.groups() == ["g"]
    again = ConsumerOffsets(Path("/store/config/o.json"), files(), max_rows=2)
    again.replace_from_json(table.to_json())
    with pytest.raises(MetadataError):
        again.commit("g", "T", 2, 1)


def test_a_queue_that_would_be_one_too_many_gets_no_first_message() -> None:
    bench = Bench(replace(CONFIG, max_queues=4))
    bench.put(1, queue_id=0)
    bench.put(1, queue_id=3)
    bench.store.topics.delete("T", 1)
    bench.store.topics.create(TopicConfig("U", 4, 4), 1)
    bench.put(1, "U", 0)
    bench.put(1, "U", 1)
    end = bench.store.log.wrote.value
    with pytest.raises(BatchRefusedError, match="one more than max_queues, 4"):
        bench.put(1, "U", 2)
    assert bench.store.log.wrote.value == end
    bench.put(1, "U", 1)
    bench.reopen(max_queues=1)
    assert bench.store.queue_table.count == 4, "what the log holds is read whatever the limit is"


def test_one_far_queue_costs_no_table_of_its_topics_size() -> None:
    table = QueueTable()
    before = table._flat.nbytes
    for number in range(100):
        table.register(f"t{number}", 65_535)
    assert table._flat.nbytes - before <= 100 * 8 * LEAST_SLOTS * 2
    assert [table.get(f"t{n}", 65_535) for n in range(100)] == list(range(100))
    assert table.get("t1", 65_534) == -1


def test_memory_follows_the_queues_that_there_are_in_any_order() -> None:
    table, ids = QueueTable(), list(range(0, 65_536, 40))
    Random(3).shuffle(ids)
    for queue_id in ids:
        table.register("t", queue_id)
        used = sum(1 for _ in table.queues_of("t")) if table.count < 50 else table.count
        assert int(table._lengths[0]) <= 2 * max(LEAST_SLOTS, SLOTS_PER_QUEUE * used)
    assert table.queues_of("t") == {queue_id: dense for dense, queue_id in enumerate(ids)}
    assert table.unregister("t")
    assert table.queues_of("t") == {}
    assert table.register("t", 65_535) == len(ids)
