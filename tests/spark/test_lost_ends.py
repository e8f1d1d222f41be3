"""A log that ends before what its queues know is never read as whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.log_builder import LogBuilder
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import CorruptLogError, OnCorruption
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.jobs.stats import stats
from tandemlog.spark.segments.segment_options import SegmentOptions
from tandemlog.spark.segments.segment_source import SegmentReader
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.tools.rebuild import rebuild as store_rebuild
from tandemlog_server.storage.tools.recover import recover

HERE = InProcess(1)
SIZES: dict[str, Any] = {"index_slots": 10, "index_entries": 400}


def config_of(store: Path) -> StoreConfig:
    return StoreConfig(store, commit_log_file_size=4096, queue_file_size=400, **SIZES)


def made(folder: Path, count: int = 40) -> LogBuilder:
    log = LogBuilder(folder, file_size=4096)
    for number in range(count):
        log.put(queue_id=number % 3, body=b"%d" % number)
    log.write()
    recover(config_of(folder))
    return log


def last_file(log: LogBuilder) -> Path:
    return log.path(log.end - 1)


def gone(log: LogBuilder) -> None:
    last_file(log).unlink()


def emptied(log: LogBuilder) -> None:
    last_file(log).write_bytes(b"")


def cut(log: LogBuilder) -> None:
    path, record = last_file(log), log.records[-2]
    path.write_bytes(path.read_bytes()[: record.physical_offset % 4096])


def zeroed(log: LogBuilder) -> None:
    path, record = last_file(log), log.records[-2]
    path.write_bytes(path.read_bytes()[: record.physical_offset % 4096].ljust(4096, b"\0"))


WAYS = [gone, emptied, cut]


# an only file that is gone or empty leaves no log to read
@pytest.mark.parametrize(("count", "lose"), [*((40, way) for way in WAYS), (9, cut)])
def test_every_reader_that_must_have_all_says_so(
    tmp_path: Path, lose: Callable[[LogBuilder], None], count: int
) -> None:
    store = tmp_path / "store"
    log = made(store, count)
    lose(log)
    for read in (
        lambda: rebuild(HERE, store, tmp_path / "rebuilt", RebuildOptions(**SIZES)),
        lambda: export(HERE, store, tmp_path / "exported", ExportOptions(**SIZES)),
        lambda: stats(HERE, store, tmp_path / "stats"),
        lambda: SegmentReader(SegmentOptions(path=str(store))).partitions(),
    ):
        with pytest.raises(CorruptLogError, match=r"bytes, the others|in the queues"):
            read()
    found = audit(HERE, store).findings
    assert any(each.fault for each in found)
    twice = compare(HERE, store, store)
    assert not twice.summary["equal"]


def test_zeros_where_the_queues_know_records_are_damage(tmp_path: Path) -> None:
    store = tmp_path / "store"
    zeroed(made(store))
    with pytest.raises(CorruptLogError):
        stats(HERE, store, tmp_path / "stats")
    assert any(each.fault for each in audit(HERE, store).findings)


@pytest.mark.parametrize("lose", [gone, emptied])
def test_jobs_that_skip_damage_report_the_lost_end(
    tmp_path: Path, lose: Callable[[LogBuilder], None]
) -> None:
    store = tmp_path / "store"
    log = made(store)
    lose(log)
    done = stats(HERE, store, tmp_path / "stats", on_corruption=OnCorruption.SKIP)
    (lost,) = [each for each in done.findings if each.kind == "lost_end"]
    assert lost.end == log.end
    assert lost.fault


@pytest.mark.parametrize("lose", WAYS)
def test_the_stores_own_rebuild_keeps_the_queues_that_know_more(
    tmp_path: Path, lose: Callable[[LogBuilder], None]
) -> None:
    log = made(tmp_path)
    lose(log)
    (tmp_path / "tandemlog" / "recovery-point.json").unlink(missing_ok=True)
    before = {path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()}
    with pytest.raises(StoreLayoutError):
        store_rebuild(config_of(tmp_path))
    assert before == {path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()}


def test_a_whole_log_is_whole(tmp_path: Path) -> None:
    made(tmp_path / "store")
    done = stats(HERE, tmp_path / "store", tmp_path / "stats")
    assert done.findings == []
    assert compare(HERE, tmp_path / "store", tmp_path / "store").summary["equal"]
