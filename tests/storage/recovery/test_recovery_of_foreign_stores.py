"""A crashed store of another broker: its checkpoint and its folders are all that is known."""

from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder
from fakes.log_builder import flip as flip_stored
from fakes.plain_format import encode_unit
from tandemlog.format.files.checkpoint import Checkpoint
from tandemlog.format.files.queue_unit import tags_code
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.tools.recover import plan, recover


@pytest.mark.parametrize("known", [True, False])
def test_damage_in_files_that_rocketmqs_checkpoint_calls_durable_is_no_end(
    tmp_path: Path, known: bool
) -> None:
    log = LogBuilder(tmp_path, file_size=4096)
    records = [log.put(body=b"x" * 300, step_ms=1000) for _ in range(40)]
    log.write()
    (tmp_path / "abort").touch()
    bad = records[3]
    flip_stored(log, bad.physical_offset + 100)
    newest_file = [each for each in records if each.physical_offset >= log.end - log.end % 4096]
    time = newest_file[0].store_timestamp + 3000 if known else 0
    (tmp_path / "checkpoint").write_bytes(Checkpoint(time, time).encode())
    config = StoreConfig(tmp_path, index_slots=10, index_entries=200)
    report = recover(config)
    if known:
        assert [damage.start for damage in report.damages] == [bad.physical_offset]
        assert report.log_end == log.end
    else:
        assert report.log_end == bad.physical_offset
        assert report.cut_saved


def test_a_checkpoint_says_nothing_of_a_file_that_begins_with_bytes_of_another_life(
    tmp_path: Path,
) -> None:
    log = LogBuilder(tmp_path, file_size=4096)
    records = [log.put(body=b"x" * 300, step_ms=1000) for _ in range(20)]
    log.write()
    stale = log.path(log.end).with_name(f"{log.end - log.end % 4096 + 4096:020d}")
    stale.write_bytes(log.path(0).read_bytes())
    (tmp_path / "abort").touch()
    time = records[-1].store_timestamp + 9000
    (tmp_path / "checkpoint").write_bytes(Checkpoint(time, time).encode())
    report = recover(StoreConfig(tmp_path, index_slots=10, index_entries=200))
    assert (report.log_end, report.damages) == (log.end, [])


def test_a_log_that_lies_elsewhere_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "elsewhere")
    record = log.put()
    log.write()
    queue = tmp_path / "store" / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    unit = encode_unit(record.physical_offset, record.size, tags_code("Orders", record.tags))
    queue.write_bytes(unit.ljust(400, b"\0"))
    config = StoreConfig(tmp_path / "store", index_slots=10, index_entries=200)
    for look in (plan, recover):
        with pytest.raises(StoreLayoutError, match="storePathCommitLog"):
            look(config)
    assert queue.read_bytes().startswith(unit)
    assert not (tmp_path / "store" / "tandemlog").exists()
    log.path(0).parent.rename(tmp_path / "store" / "commitlog")
    assert recover(config).log_end == log.end
