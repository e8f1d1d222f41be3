"""From RocketMQ's commit logs alone: the same queue units and the same index entries.

Each log file is walked in strict mode to where it stops, its records dispatched by columns, and
the result compared with what RocketMQ itself holds.
"""

from pathlib import Path
from typing import Any

import pytest

from helpers import golden
from tandemlog.format.columns.dispatch import DispatchColumns, dispatch_columns, unit_columns
from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.walk import StopReason

pytestmark = pytest.mark.golden


@pytest.fixture(params=golden.stores(), ids=lambda each: each.label)
def store(request: pytest.FixtureRequest) -> golden.Golden:
    param: golden.Golden = request.param
    return param


def dispatched(folder: Path, end: int, *, index_tags: bool) -> list[DispatchColumns]:
    """The dispatch of every log file, as far as RocketMQ's own recovery kept the log."""
    batches = []
    for path in sorted((folder / "commitlog").iterdir()):
        data, base = path.read_bytes(), int(path.name)
        if base >= end:
            break
        found, headers = walk_strict(
            data, 0, min(end - base, len(data)), base_offset=base, limit=len(data)
        )
        if base + found.end < end:
            assert found.stop is StopReason.BLANK
        batches.append(
            dispatch_columns(
                data, found.positions, found.sizes, base, headers=headers, index_tags=index_tags
            )
        )
    return batches


def queue_rows(batch: DispatchColumns) -> list[dict[str, Any]]:
    found = unit_columns(batch)
    return [
        {
            "topic": found.topics[found.topic_index[i]],
            "queue_id": int(found.queue_id[i]),
            "queue_offset": int(found.queue_offset[i]),
            "physical_offset": int(found.units["physical_offset"][i]),
            "size": int(found.units["size"][i]),
            "tags_code": int(found.units["tags_code"][i]),
        }
        for i in range(len(found.units))
    ]


def has_tag_entries(store: golden.Golden) -> bool:
    """RocketMQ puts tags into the index since 5.4."""
    return store.indexes_tags


def test_dispatch_gives_rocketmq_queues_and_index(store: golden.Golden, tmp_path: Path) -> None:
    copy = store.copy(tmp_path)
    last = max(copy.expected("messages"), key=lambda row: int(row["physical_offset"]))
    end = last["physical_offset"] + last["size"]
    batches = dispatched(copy.store, end, index_tags=has_tag_entries(store))

    def place(row: dict[str, Any]) -> tuple[str, int, int]:
        return row["topic"], row["queue_id"], row["queue_offset"]

    rows = [row for batch in batches for row in queue_rows(batch)]
    assert sorted(rows, key=place) == sorted(copy.expected("queues"), key=place)

    entries = [
        (key_hash, int(batch.physical_offset[record]))
        for batch in batches
        for key_hash, record in zip(
            batch.key_hash.tolist(), batch.entry_record.tolist(), strict=True
        )
    ]
    expected = [(row["key_hash"], row["physical_offset"]) for row in copy.expected("index")]
    if store.exact_index:
        assert entries == expected
    else:
        assert set(entries) == set(expected)
