import errno
from pathlib import Path

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import CorruptStoreError, StoreReadOnlyError
from tandemlog_server.storage.metadata.topics import (
    GroupTable,
    MetadataError,
    TopicConfig,
    TopicTable,
)

PATH = Path("/store/config/topics.json")
GROUPS = Path("/store/config/subscriptionGroup.json")

ROCKETMQ = """{
	"dataVersion":{
		"counter":6,
		"stateVersion":3,
		"timestamp":1795245320637
	},
	"later":{
		"kept":true
	},
	"topicConfigTable":{
		"gold":{
			"attributes":{
				"+message.type":"FIFO"
			},
			"order":false,
			"perm":7,
			"readQueueNums":16,
			"topicFilterType":"MULTI_TAG",
			"topicName":"gold",
			"topicSysFlag":1,
			"writeQueueNums":4
		}
	}
}"""


def topics(text: str | None = None) -> tuple[TopicTable, MemoryFiles]:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    if text is not None:
        files.atomic_replace(PATH, text.encode())
    found = TopicTable(PATH, files)
    found.load()
    return found, files


def test_rocketmqs_topics_are_read() -> None:
    table, _ = topics(ROCKETMQ)
    gold = table.get("gold")
    assert gold is not None
    assert (gold.read_queues, gold.write_queues, gold.perm, gold.order) == (16, 4, 7, False)
    assert gold.attributes == {"+message.type": "FIFO"}
    assert table.version == 6


def test_a_change_keeps_everything_that_is_not_ours() -> None:
    table, files = topics(ROCKETMQ)
    table.create(TopicConfig("Orders", 2, 2), now_ms=99)
    text = files.read_file(PATH).decode()
    assert '"later":{\n\t\t"kept":true' in text
    assert (
        '"topicFilterType":"MULTI_TAG",\n\t\t\t"topicName":"gold",\n\t\t\t"topicSysFlag":1' in text
    )
    assert '"counter":7,\n\t\t"stateVersion":3,\n\t\t"timestamp":99' in text
    again = TopicTable(PATH, files)
    again.load()
    assert again.names() == ["Orders", "gold"]
    assert again.table == table.table


def test_a_new_topic_is_written_as_rocketmq_writes_it() -> None:
    table, files = topics()
    table.create(TopicConfig("T", 8, 8), now_ms=5)
    assert files.read_file(PATH).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":5\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"T":{\n\t\t\t"attributes":{},\n\t\t\t"order":false,\n'
        '\t\t\t"perm":6,\n\t\t\t"readQueueNums":8,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        '\t\t\t"topicName":"T",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":8\n\t\t}\n\t}\n}'
    )


def test_an_existing_topic_changes_only_on_request() -> None:
    table, _ = topics(ROCKETMQ)
    with pytest.raises(MetadataError) as refused:
        table.create(TopicConfig("gold"), now_ms=1)
    assert refused.value.code == "TOPIC_EXISTS"
    changed = table.create(TopicConfig("gold", 4, 2), now_ms=1, update=True)
    assert changed.members == {"topicFilterType": "MULTI_TAG", "topicSysFlag": 1}


@pytest.mark.parametrize(
    ("topic", "field"),
    [
        (TopicConfig(""), "name"),
        (TopicConfig("no/slash"), "name"),
        (TopicConfig("x" * 128), "name"),
        (TopicConfig("T", write_queues=0), "write_queues"),
        (TopicConfig("T", read_queues=1 << 17), "read_queues"),
        (TopicConfig("T", perm=16), "perm"),
    ],
)
def test_bad_topics_are_refused_by_field(topic: TopicConfig, field: str) -> None:
    table, files = topics()
    with pytest.raises(MetadataError) as refused:
        table.create(topic, now_ms=1)
    assert refused.value.field == field
    assert files.status(PATH) is None


def test_delete_takes_the_topic_off_the_table() -> None:
    table, _ = topics(ROCKETMQ)
    table.delete("gold", now_ms=1)
    assert table.get("gold") is None
    with pytest.raises(MetadataError) as refused:
        table.delete("gold", now_ms=1)
    assert refused.value.code == "UNKNOWN_TOPIC"


def test_listeners_hear_of_every_change() -> None:
    table, _ = topics()
    heard: list[list[str]] = []
    table.listen(lambda: heard.append(table.names()))
    table.create(TopicConfig("T"), now_ms=1)
    table.replace_from_json(ROCKETMQ.encode())
    table.delete("gold", now_ms=2)
    assert heard == [["T"], ["gold"], []]


def test_a_slave_takes_the_masters_table_whole() -> None:
    master, _ = topics(ROCKETMQ)
    slave, files = topics()
    slave.create(TopicConfig("old"), now_ms=1)
    slave.replace_from_json(master.to_json())
    assert slave.to_json() == master.to_json() == files.read_file(PATH)
    assert slave.version == 6


def test_a_table_that_is_none_changes_nothing() -> None:
    table, _ = topics(ROCKETMQ)
    for text in (b"[1]", b"{", b'{"topicConfigTable":{"T":3}}'):
        with pytest.raises(FormatError):
            table.replace_from_json(text)
    assert table.names() == ["gold"]


def test_a_damaged_file_is_read_from_its_backup() -> None:
    table, files = topics(ROCKETMQ)
    table.create(TopicConfig("T"), now_ms=1)
    for damage in (b"", b"\0\0\0", b'{"topicConfigTable":'):
        files.atomic_replace(PATH, damage)
        again = TopicTable(PATH, files)
        again.load()
        assert again.names() == ["gold"]
        assert "topics.json.bak was taken instead" in again.note


def test_a_backup_that_is_the_only_copy_stays_until_the_file_is_whole() -> None:
    table, files = topics(ROCKETMQ)
    table.create(TopicConfig("T"), now_ms=1)
    files.atomic_replace(PATH, b"{")
    again = TopicTable(PATH, files)
    again.load()
    files.fail("rename", errno.EIO, name="topics.json.tmp", times=1)
    with pytest.raises(StoreReadOnlyError):
        again.create(TopicConfig("U"), now_ms=1)
    last = TopicTable(PATH, files)
    last.load()
    assert last.names() == ["gold"]
    again.create(TopicConfig("U"), now_ms=1)
    again.create(TopicConfig("V"), now_ms=1)
    files.unlink(PATH)
    last = TopicTable(PATH, files)
    last.load()
    assert last.names() == ["U", "gold"]
    assert last.note == "topics.json is missing; topics.json.bak was taken instead"


def test_both_damaged_is_an_error_and_no_empty_table() -> None:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    files.atomic_replace(PATH, b"{")
    with pytest.raises(CorruptStoreError, match=r"topics\.json: JSON"):
        TopicTable(PATH, files).load()


def test_a_change_that_cannot_be_written_is_not_published() -> None:
    table, files = topics(ROCKETMQ)
    files.fail("fdatasync", errno.EIO)
    with pytest.raises(StoreReadOnlyError, match=f"{PATH} cannot be written.*Input/output error"):
        table.create(TopicConfig("T"), now_ms=1)
    assert table.names() == ["gold"]
    assert table.version == 6
    files.heal()
    table.create(TopicConfig("U"), now_ms=1)
    assert TopicConfig("T").name not in files.read_file(PATH).decode().split('"')


def test_groups_are_made_with_rocketmqs_defaults() -> None:
    files = MemoryFiles()
    table = GroupTable(GROUPS, files)
    table.load()
    assert table.ensure("G", now_ms=7)
    assert not table.ensure("G", now_ms=8)
    text = files.read_file(GROUPS).decode()
    assert text.startswith('{\n\t"dataVersion":{\n\t\t"counter":1,')
    assert '"forbiddenTable":{},\n\t"subscriptionGroupTable":{\n\t\t"G":{' in text
    assert '"groupRetryPolicy":{\n\t\t\t\t"type":"CUSTOMIZED"' in text
    again = GroupTable(GROUPS, files)
    again.load()
    assert again.names() == ["G"]
    other = GroupTable(Path("/other/g.json"), files)
    other.replace_from_json(again.to_json())
    assert other.table == again.table


def test_a_bad_group_name_is_refused() -> None:
    table = GroupTable(GROUPS, MemoryFiles())
    with pytest.raises(MetadataError):
        table.ensure("a b", now_ms=1)
