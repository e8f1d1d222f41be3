from pathlib import Path

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.format.transaction.decision import NO_OFFSET, GroupOffset
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.metadata.consumer_offsets import ConsumerOffset, ConsumerOffsets

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


def master_of(slave: ConsumerOffsets) -> ConsumerOffsets:
    master, _ = loaded(None)
    master.replace_from_json(slave.to_json())
    return master


@pytest.mark.parametrize("change", ["begins", "another group begins", "goes back", "is dropped"])
def test_what_must_not_be_lost_is_durable_before_a_slave_says_that_it_has_it(change: str) -> None:
    slave, files = loaded()
    master = master_of(slave)
    if change == "is dropped":
        master.drop("GID_reader")
    else:
        master.commit(
            "new" if change == "another group begins" else "GID_reader",
            "Orders",
            5 if change == "begins" else 0,
            100,
        )
    slave.replace_from_json(master.to_json())
    after_a_crash = ConsumerOffsets(PATH, files)
    after_a_crash.load()
    for group in ("GID_reader", "new"):
        assert after_a_crash.fetch(group) == master.fetch(group)
    assert not slave.save(now_ms=1)


def test_offsets_that_only_move_forward_cost_a_slave_no_write() -> None:
    slave, files = loaded()
    before = files.read_file(PATH)
    master = master_of(slave)
    master.commit("GID_reader", "Orders", 0, 300)
    slave.replace_from_json(master.to_json())
    assert slave.offset("GID_reader", "Orders", 0) == 300
    assert files.read_file(PATH) == before
    assert slave.save(now_ms=1), "the next round saves it"


def test_a_place_that_a_master_could_not_save_is_saved_once_it_follows() -> None:
    offsets, files = loaded(None)
    offsets.commit("g", "T", 0, 7)  # in memory only: the disk was full, or it died before
    same = offsets.to_json()
    offsets.replace_from_json(same)
    again = ConsumerOffsets(PATH, files)
    again.load()
    assert again.offset("g", "T", 0) == 7


@pytest.mark.parametrize("how", ["cut", "set by hand", "dropped by hand"])
def test_what_the_log_takes_back_is_durable_before_a_slave_says_that_it_has_it(how: str) -> None:
    """Its own log has done the same to the slave, in memory: the table brings nothing new."""
    slave, files = loaded()
    master = master_of(slave)
    for each in (master, slave):
        if how == "cut":
            each.clamp(lambda *_: 100)
        else:
            to = 100 if how == "set by hand" else NO_OFFSET
            each.set_floors([GroupOffset("GID_reader", "Orders", 0, at) for at in (282, to)])
    slave.replace_from_json(master.to_json())
    after_a_crash = ConsumerOffsets(PATH, files)
    after_a_crash.load()
    assert after_a_crash.fetch("GID_reader") == master.fetch("GID_reader")
