"""Every job on stores that RocketMQ wrote: what it makes of them is RocketMQ's own."""

import filecmp
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.dataset as dataset
import pytest

from helpers import golden
from tandemlog.format.files.index_layout import ENTRY_DTYPE, decode_index_header, entry_position
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.jobs.restore import restore
from tandemlog.logs.jobs.stats import stats
from tandemlog.logs.tasks.store_settings import index_paths

pytestmark = pytest.mark.golden
HERE = InProcess(2)
Stored = tuple[golden.Golden, golden.GoldenCopy]
STORES = golden.stores()


@pytest.fixture(params=STORES, ids=lambda each: each.label)
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[golden.Golden, golden.GoldenCopy]:
    return request.param, request.param.copy(tmp_path / "golden")


def options(copy: golden.GoldenCopy, target_bytes: int = 30_000) -> RebuildOptions:
    sizes = copy.sizes
    return RebuildOptions(
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
        queue_file_size=sizes["queue_file_size"],
        target_bytes=target_bytes,
    )


def files_below(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def same_files(mine: Path, theirs: Path) -> None:
    made, expected = files_below(mine), files_below(theirs)
    assert sorted(made) == sorted(expected)
    different = [
        name for name in made if not filecmp.cmp(made[name], expected[name], shallow=False)
    ]
    assert different == []


def index_entries(store: Path, slots: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for path in index_paths(store):
        data = path.read_bytes()
        count = decode_index_header(data).next_entry - 1
        entries = np.frombuffer(data, ENTRY_DTYPE, count, entry_position(slots, 1))
        found += zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True)
    return found


@pytest.mark.parametrize("target_bytes", [30_000, 1 << 30])
def test_rebuild_makes_rocketmqs_own_files(
    store: Stored, tmp_path: Path, target_bytes: int
) -> None:
    kind, copy = store
    result = rebuild(HERE, copy.store, tmp_path / "out", options(copy, target_bytes))
    same_files(tmp_path / "out" / "consumequeue", copy.store / "consumequeue")
    slots = copy.sizes["index_slots"]
    mine, theirs = (index_entries(each, slots) for each in (tmp_path / "out", copy.store))
    if kind.exact_index:
        assert mine == theirs
        pairs = zip(index_paths(tmp_path / "out"), index_paths(copy.store), strict=True)
        assert all(filecmp.cmp(made, expected, shallow=False) for made, expected in pairs)
    else:
        assert set(mine) == set(theirs)
    assert result.summary["index_tags"] == kind.indexes_tags
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["consumequeue", "index"]


@pytest.mark.parametrize("target_bytes", [30_000, 1 << 30])
def test_a_whole_store_is_found_whole(store: Stored, target_bytes: int) -> None:
    _, copy = store
    result = audit(HERE, copy.store, target_bytes=target_bytes)
    messages = copy.expected("messages")
    assert (result.holds, result.findings, result.notes) == (True, [], [])
    assert result.summary["records"] == len(messages)
    assert result.summary["topics"] == Counter(row["topic"] for row in messages)


def test_export_and_restore_give_the_same_store(store: Stored, tmp_path: Path) -> None:
    _, copy = store
    sizes = copy.sizes
    archive, again = tmp_path / "archive", tmp_path / "again"
    made = export(
        HERE,
        copy.store,
        archive,
        ExportOptions(
            target_bytes=30_000,
            index_slots=sizes["index_slots"],
            index_entries=sizes["index_entries"],
        ),
    )
    counts = Counter(row["topic"] for row in copy.expected("messages"))
    assert made.summary["topics"] == counts
    table = dataset.dataset(archive / "messages", partitioning="hive").to_table(["body"])
    assert len(table) == counts.total()
    restored = restore(HERE, archive, again, options(copy))
    assert restored.summary["records"] == counts.total()
    for name in ("commitlog", "consumequeue", "config"):
        if (copy.store / name).exists():
            same_files(again / name, copy.store / name)
    assert audit(HERE, again).holds
    assert compare(HERE, copy.store, again).summary["equal"]


def test_stats_count_what_is_there(store: Stored, tmp_path: Path) -> None:
    _, copy = store
    result = stats(HERE, copy.store, tmp_path / "stats", target_bytes=30_000)
    messages = copy.expected("messages")
    assert result.summary["topics"] == Counter(row["topic"] for row in messages)
    for row in result.rows:
        sizes = sorted(
            each["size"]
            for each in messages
            if each["topic"] == row["topic"]
            and each["store_timestamp"] // 3_600_000 * 3_600_000 == _hour(row["hour"])
        )
        assert (row["records"], row["bytes"]) == (len(sizes), sum(sizes))
        assert (row["min"], row["max"]) == (sizes[0], sizes[-1])
        assert row["p50"] == np.percentile(sizes, 50, method="inverted_cdf")
        assert row["p99"] == np.percentile(sizes, 99, method="inverted_cdf")
    assert (tmp_path / "stats" / "stats.png").stat().st_size > 1000


def _hour(text: str) -> int:
    return int(np.datetime64(text.removesuffix("Z"), "ms").astype(int))


def test_two_nodes_of_a_pair_are_equal(tmp_path: Path) -> None:
    pair = [each for each in STORES if "pair" in each.label]
    if len(pair) == 2:
        copies = [each.copy(tmp_path / each.node) for each in pair]
        result = compare(HERE, copies[0].store, copies[1].store)
        assert result.summary["equal"]
        assert result.findings == []
