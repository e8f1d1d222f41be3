from pathlib import Path

import pytest

from storage.metadata.consumer_offsets import ConsumerOffset, ConsumerOffsets
from tandemlog.format.errors import FormatError
from tandemlog.testing.memory_files import MemoryFiles

PATH = Path("/store/config/consumerOffset.json")

ROCKETMQ = """{
	"dataVersion":{
		"counter":4,
		"stateVersion":0,
		"timestamp":1795245289038
	},
	"groupTopicMap":{
		"GID_reader":[
			"Orders"
		]
	},
	"offsetTable":{
		"Orders@GID_reader":{
			0:282,
			1:253
		}
	},
	"pullOffsetTable":{
		"Audit-1@GID_observer_tmp":{
			0:400
		}
	}
}"""


def loaded(text: str | None = ROCKETMQ) -> tuple[ConsumerOffsets, MemoryFiles]:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    if text is not None:
        files.atomic_replace(PATH, text.encode())
    offsets = ConsumerOffsets(PATH, files)
    offsets.load()
    return offsets, files


def test_rocketmqs_offsets_are_read() -> None:
    offsets, _ = loaded()
    assert offsets.fetch("GID_reader") == [
        ConsumerOffset("GID_reader", "Orders", 0, 282),
        ConsumerOffset("GID_reader", "Orders", 1, 253),
    ]
    assert offsets.fetch("GID_reader", ["Logs"]) == []
    assert offsets.offset("GID_reader", "Orders", 1) == 253
    assert offsets.offset("GID_reader", "Orders", 9) is None
    assert offsets.groups() == ["GID_reader"]


def test_a_save_changes_nothing_but_the_offset_and_the_version() -> None:
    offsets, files = loaded()
    assert not offsets.save(now_ms=1)
    offsets.commit("GID_reader", "Orders", 1, 260)
    assert offsets.save(now_ms=17)
    assert not offsets.save(now_ms=18)
    expected = ROCKETMQ.replace("1:253", "1:260").replace(":4,", ":5,")
    assert files.read_file(PATH).decode() == expected.replace("1795245289038", "17")


def test_the_first_save_has_rocketmqs_shape() -> None:
    offsets, files = loaded(None)
    offsets.commit("G", "T", 3, 7)
    offsets.save(now_ms=9)
    assert files.read_file(PATH).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":9\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"G":[\n\t\t\t"T"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t3:7\n\t\t}\n\t}\n}'
    )


def test_committing_the_same_again_is_no_change() -> None:
    offsets, _ = loaded()
    before = offsets.version
    offsets.commit("GID_reader", "Orders", 0, 282)
    assert offsets.version == before
    offsets.commit("GID_reader", "Orders", 0, 281)
    assert offsets.version == before + 1


def test_offsets_above_their_queue_are_clamped() -> None:
    offsets, _ = loaded()
    ends = {("Orders", 0): 100}
    changed = offsets.clamp(lambda topic, queue_id: ends.get((topic, queue_id)))
    assert changed == [ConsumerOffset("GID_reader", "Orders", 0, 282)]
    assert offsets.offset("GID_reader", "Orders", 0) == 100
    assert offsets.offset("GID_reader", "Orders", 1) == 253


def test_a_slave_takes_the_masters_table_even_where_it_is_lower() -> None:
    master, _ = loaded()
    slave, files = loaded(None)
    slave.commit("GID_reader", "Orders", 0, 999)
    slave.replace_from_json(master.to_json())
    assert slave.offset("GID_reader", "Orders", 0) == 282
    slave.save(now_ms=5)
    assert b"GID_observer_tmp" in files.read_file(PATH)


def test_a_table_that_is_none_changes_nothing() -> None:
    offsets, _ = loaded()
    with pytest.raises(FormatError):
        offsets.replace_from_json(b"nothing")
    assert offsets.offset("GID_reader", "Orders", 0) == 282


def test_an_older_brokers_file_with_quoted_numbers_is_read() -> None:
    offsets, _ = loaded('{"offsetTable":{"T@G":{"0":"12","1":7},"stray":{}}}')
    assert [each.queue_offset for each in offsets.fetch("G")] == [12, 7]
