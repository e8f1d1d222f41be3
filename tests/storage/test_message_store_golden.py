"""RocketMQ's stores opened, recovered, served, rebuilt: all as RocketMQ itself does it.

The expected files hold what RocketMQ's own code reads after its own recovery; client.jsonl what
its client saw of the running broker.
"""

import filecmp
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import golden
from tandemlog.format.java_hash import java_hash
from tandemlog.format.record.message_id import decode_offset_id
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import decompress_body
from tandemlog_server.storage.config import ConfirmSource, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetResult, GetStatus
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import plan, recover
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.golden

STORES = golden.stores()
CLIENT_STATUS = {
    "FOUND": {GetStatus.FOUND},
    "NO_NEW_MSG": {GetStatus.OFFSET_OVERFLOW_ONE},
    "OFFSET_ILLEGAL": {GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL},
    "NO_MATCHED_MSG": {GetStatus.NO_MATCHED_MESSAGE},
}


def config_of(copy: golden.GoldenCopy) -> StoreConfig:
    sizes = copy.sizes
    return StoreConfig(
        directory=copy.store,
        queue_file_size=sizes["queue_file_size"],
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
    )


def check_derived(config: StoreConfig, copy: golden.GoldenCopy, *, exact_index: bool) -> None:
    queues = list(dump(config, "queues"))
    assert sorted(map(str, queues)) == sorted(map(str, copy.expected("queues")))
    keys = ("key_hash", "physical_offset")
    index = [tuple(row[key] for key in keys) for row in dump(config, "index")]
    expected = [tuple(row[key] for key in keys) for row in copy.expected("index")]
    if exact_index:
        assert index == expected
    assert set(index) == set(expected)


@pytest.mark.parametrize("golden_store", STORES, ids=lambda each: each.label)
def test_recovered_it_holds_what_rocketmq_recovers(
    golden_store: golden.Golden, tmp_path: Path
) -> None:
    copy = golden_store.copy(tmp_path)
    config = config_of(copy)
    report = recover(config)
    assert report.clean_stop == (not golden_store.killed)
    assert report.foreign
    assert report.damages == []
    assert not (copy.store / "abort").exists()
    assert list(dump(config, "messages")) == copy.expected("messages")
    check_derived(config, copy, exact_index=golden_store.exact_index)
    assert [str(fault) for fault in verify(config).faults] == []
    again = recover(config)
    assert (again.scanned_records, again.dispatched, again.foreign) == (0, 0, False)


@pytest.mark.parametrize("golden_store", STORES, ids=lambda each: each.label)
def test_rebuilt_from_the_log_alone_it_is_the_same(
    golden_store: golden.Golden, tmp_path: Path
) -> None:
    copy = golden_store.copy(tmp_path / "work")
    untouched = golden_store.copy(tmp_path / "untouched").store / "consumequeue"
    config = config_of(copy)
    recover(config)
    report = rebuild(config)
    assert report.queues
    assert report.index
    check_derived(config, copy, exact_index=False)
    for file in untouched.rglob("*"):
        twin = copy.store / "consumequeue" / file.relative_to(untouched)
        assert file.is_dir() or filecmp.cmp(file, twin, shallow=False), file
    assert not list(copy.store.glob("rebuild-*"))
    assert verify(config).holds


@pytest.mark.parametrize("golden_store", STORES, ids=lambda each: each.label)
def test_a_dry_run_changes_nothing(golden_store: golden.Golden, tmp_path: Path) -> None:
    copy = golden_store.copy(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")}
    report = plan(config_of(copy))
    assert report.clean_stop == (not golden_store.killed)
    assert report.log_end == max(
        row["physical_offset"] + row["size"] for row in copy.expected("messages")
    )
    assert {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")} == before
    done = recover(config_of(copy))
    assert (report.scanned_records, report.dispatched) == (done.scanned_records, done.dispatched)


@pytest.fixture(params=STORES, ids=lambda each: each.label)
def served(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[MessageStore, golden.GoldenCopy]]:
    copy = request.param.copy(tmp_path)
    store = MessageStore.open(config_of(copy))
    yield store, copy
    store.close()


def records_of(result: GetResult) -> list[Record]:
    ends = np.cumsum(result.sizes.astype(np.int64))
    return [
        decode_record(result.records, int(end - size))
        for end, size in zip(ends, result.sizes.tolist(), strict=True)
    ]


def as_the_client_sees_it(record: Record) -> dict[str, Any]:
    body = decompress_body(record.sys_flag, record.body)
    row = {
        "kind": "message",
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "client_msg_id": record.uniq_key or record.msg_id,
        "offset_msg_id": record.msg_id,
        "tags": record.tags,
        "keys": record.keys,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc,
        "body_after_decompression_sha256": hashlib.sha256(body).hexdigest(),
        "body_length_after_decompression": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "length": len(body),
    }
    return {name: value for name, value in row.items() if value is not None}


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """All fields that the client has told; but it clears the compression bit of what it has
    decompressed."""
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        names = theirs.keys() - {"sys_flag"}
        assert {name: mine.get(name) for name in names} == {name: theirs[name] for name in names}


def test_it_serves_what_rocketmqs_client_saw(
    served: tuple[MessageStore, golden.GoldenCopy],
) -> None:
    store, copy = served
    ranges = {(each.topic, each.queue_id): each for each in store.reader.ranges()}
    for row in copy.client("range"):
        found = ranges[row["topic"], row["queue_id"]]
        assert (found.min_offset, found.max_offset) == (row["min_offset"], row["max_offset"])
    _check_messages(store, copy)
    for row in copy.client("search_offset"):
        boundary = Boundary(row["boundary"])
        assert (
            store.reader.search_offset(row["topic"], row["queue_id"], row["timestamp"], boundary)
            == row["offset"]
        ), row
    for row in copy.client("query_key"):
        keyed = store.reader.query_key(
            row["topic"], row["key"], max_messages=row.get("max_messages", 64)
        )
        assert list(keyed.physical_offsets) == row["physical_offsets"], row
    for row in copy.client("view"):
        _, offset = decode_offset_id(row["offset_msg_id"])
        record = decode_record(store.reader.record_at(offset))
        assert (record.topic, record.queue_id, record.queue_offset) == (
            row["topic"], row["queue_id"], row["queue_offset"],
        )  # fmt: skip


def _check_messages(store: MessageStore, copy: golden.GoldenCopy) -> None:
    wanted: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in copy.client("message"):
        wanted.setdefault((row["topic"], row["queue_id"]), []).append(row)
    for (topic, queue_id), rows in wanted.items():
        found, offset = [], rows[0]["queue_offset"]
        while (result := store.reader.get(topic, queue_id, offset, 0, 1 << 20)).count:
            found += [as_the_client_sees_it(record) for record in records_of(result)]
            offset = result.next_offset
        assert_same(found, rows)


def test_its_pulls_end_where_rocketmqs_do(
    served: tuple[MessageStore, golden.GoldenCopy],
) -> None:
    store, copy = served
    for row in copy.client("pull"):
        tags = set() if row["tags"] == "*" else {tag.strip() for tag in row["tags"].split("||")}
        result = store.reader.get(
            row["topic"],
            row["queue_id"],
            row["offset"],
            row["max_messages"],
            1 << 20,
            {java_hash(tag) for tag in tags},
        )
        assert result.status in CLIENT_STATUS[row["status"]], row
        assert result.next_offset == row["next_begin_offset"], row
        assert (result.min_offset, result.max_offset) == (row["min_offset"], row["max_offset"])
        offsets = [
            record.queue_offset for record in records_of(result) if not tags or record.tags in tags
        ]
        assert offsets == row["offsets"], row


def test_it_serves_the_same_when_opened_as_a_replica(tmp_path: Path) -> None:
    copy = STORES[-1].copy(tmp_path)
    config = config_of(copy)
    recover(config)
    store = MessageStore.open(
        StoreConfig(
            directory=copy.store,
            index_slots=config.index_slots,
            index_entries=config.index_entries,
            confirm=ConfirmSource.REPLICATION,
        )
    )
    _check_messages(store, copy)
    assert not store.writable
    store.close()


def test_its_tables_are_read_and_kept(tmp_path: Path) -> None:
    copy = next(each for each in STORES if each.label == "rocketmq-5.5.0-clean").copy(tmp_path)
    path = copy.store / "config" / "topics.json"
    before = path.read_bytes()
    store = MessageStore.open(config_of(copy))
    assert "Orders" in store.topics.names()
    assert store.topics.to_json() == before
    store.close()
    assert path.read_bytes() == before
