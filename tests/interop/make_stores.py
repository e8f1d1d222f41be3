"""Make small stores with a real broker, and note what RocketMQ reads from them.

usage: ROCKETMQ_VERSION=5.5.0 python -m interop.make_stores OUT [NAME ...]   (PYTHONPATH=tests)

Writes OUT/rocketmq-VERSION-NAME.tar.xz for the recipes NAME of interop/recipes.py (default: those
that tests/data has of this version): store/, expected/{messages,queues,index}.jsonl, client.jsonl
and store.json, in the form that tests/helpers/golden.py reads. `make` does the same for any recipe,
into a folder.

    broker ──traffic──▶ store/ ──stop──▶ expected/            a clean stop
                          └────kill──▶ store/                 taken as the kill left it
                                         └─copy─▶ broker ──▶ expected/, client.jsonl
"""

import argparse
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interop.jars import VERSION
from interop.recipes import SHIPPED, Recipe, Traffic, recipe
from interop.rocketmq import write_topics
from interop.store_client import StoreClient, dump, served

LEFT_OUT = ("rocksdbstore", "compaction")
"""Folders of the root that hold nothing of the store."""


def observe(client: StoreClient, topics: dict[str, int]) -> list[dict[str, Any]]:
    """What RocketMQ's client sees of the running broker, a row a question."""
    rows: list[dict[str, Any]] = []
    for topic, queues in topics.items():
        keys: set[str] = set()
        for queue_id in range(queues):
            place = {"topic": topic, "queue_id": queue_id}
            limits = client.call("range", topic, queue_id)
            low, high = limits["min"], limits["max"]
            rows.append({"kind": "range", **place, "min_offset": low, "max_offset": high})
            messages = client.call("pull", topic, queue_id)["messages"]
            rows += [{"kind": "message", **message} for message in messages]
            for message in messages:
                keys.update(each for each in (message.get("keys") or "").split(" ") if each)
            sample = messages[:: max(1, len(messages) // 5)]
            times = [message["store_timestamp"] for message in sample]
            rows += _times(
                client, place, [each for time_ms in times for each in (time_ms - 1, time_ms)]
            )
            rows += _pulls(client, place, low, high)
            rows += [
                {"kind": "view", **_place_of(message), "offset_msg_id": message["offset_msg_id"]}
                for message in sample
            ]
        for key in sorted(keys)[:8]:
            found = client.call("key", topic, key)["messages"]
            offsets = sorted(each["physical_offset"] for each in found)
            rows.append(
                {"kind": "query_key", "topic": topic, "key": key, "physical_offsets": offsets}
            )
    return rows


def _place_of(message: dict[str, Any]) -> dict[str, Any]:
    return {
        name: message[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset")
    }


def _times(
    client: StoreClient, place: dict[str, Any], times: Iterable[int]
) -> list[dict[str, Any]]:
    rows = []
    for time_ms in times:
        found = client.call("search", place["topic"], place["queue_id"], time_ms)
        rows += [
            {
                "kind": "search_offset",
                **place,
                "timestamp": time_ms,
                "boundary": boundary,
                "offset": found[boundary],
            }
            for boundary in ("lower", "upper")
            if boundary in found  # brokers before 5.0 have no boundaries
        ]
    return rows


def _pulls(client: StoreClient, place: dict[str, Any], low: int, high: int) -> list[dict[str, Any]]:
    if low == high:
        return []
    rows = []
    for tags in ("*", "TagA", "pay||none"):
        for offset in sorted({low, (low + high) // 2, high - 1}):
            asked = {**place, "tags": tags, "offset": offset, "max_messages": 7}
            answer = client.call("pull_once", place["topic"], place["queue_id"], tags, offset, 7)
            rows.append({"kind": "pull", **asked, **answer})
    return rows


def observed_below(rows: list[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    """What a client would have seen of a log that ends at `end`: answers that tell of later
    messages are left out, or told without them."""
    ends: dict[tuple[str, int], int] = {}
    for row in rows:
        if row["kind"] == "message" and row["physical_offset"] >= end:
            queue = row["topic"], row["queue_id"]
            ends[queue] = min(ends.get(queue, 1 << 62), row["queue_offset"])
    kept = []
    for row in rows:
        last = ends.get((row["topic"], row.get("queue_id", -1)), 1 << 62)
        if row["kind"] == "range":
            kept.append({**row, "max_offset": min(row["max_offset"], last)})
        elif row["kind"] == "query_key":
            offsets = [each for each in row["physical_offsets"] if each < end]
            kept.append({**row, "physical_offsets": offsets})
        elif row["kind"] == "pull":
            if row["next_begin_offset"] <= last:
                kept.append(row)
        elif row["kind"] == "search_offset":
            if row["offset"] < last:
                kept.append(row)
        elif row["physical_offset"] < end:
            kept.append(row)
    return kept


def pack(folder: Path, archive: Path) -> None:
    """What tests/helpers/golden.py reads, as one archive."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(folder.rglob("*")):
            info = tar.gettarinfo(str(path), str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if path.is_file():
                with path.open("rb") as data:
                    tar.addfile(info, data)
            else:
                tar.addfile(info)


def make(what: Recipe, folder: Path, work: Path) -> None:
    """The store of a recipe in `folder`, which must not exist; `work` is for what is not kept."""
    store = folder / "store"
    write_topics(store, what.topics, what.attributes)
    observed: list[dict[str, Any]] = []
    known = next(iter(what.topics))
    with served(store, what.sizes, work / "first", known, **what.settings) as (broker, client):
        traffic = Traffic(client, store)
        for step in what.steps:
            step(traffic)
        if what.kill:
            broker.kill()
        elif not what.reopened:
            observed = observe(client, what.observed_topics)
    read_from, end_ms = store, 1 << 62
    if what.kill or what.reopened:
        end_ms = int(time.time() * 1000)
        read_from = work / "recovered"
        shutil.copytree(store, read_from)
        with served(read_from, what.sizes, work / "second", known, **what.settings) as (_, client):
            time.sleep(3)  # what was delayed and not noted as delivered comes again first
            observed = observe(client, what.observed_topics)
    expected = {
        each: dump(read_from, each, work / "dump", what.sizes.index_slots)
        for each in ("messages", "queues", "index")
    }
    # what a broker that has recovered the store has added since is not the store's
    later = [row for row in expected["messages"] if row["store_timestamp"] > end_ms]
    end = min((row["physical_offset"] for row in later), default=1 << 62)
    (folder / "expected").mkdir()
    for each, rows in expected.items():
        below = [row for row in rows if row["physical_offset"] < end]
        _write_lines(folder / "expected" / f"{each}.jsonl", below)
    _write_lines(folder / "client.jsonl", observed_below(observed, end))
    said = {
        "commit_log_file_size": what.sizes.commit_log_file_size,
        "queue_file_size": what.sizes.queue_file_size,
        "index_slots": what.sizes.index_slots,
        "index_entries": what.sizes.index_entries,
        "killed": what.kill,
    }
    (folder / "store.json").write_text(json.dumps(said) + "\n")
    for name in LEFT_OUT:
        shutil.rmtree(store / name, ignore_errors=True)


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make small stores with a real broker.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="recipes; default: those that tests/data has")
    parser.add_argument("--folders", action="store_true", help="write folders, no archives")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or SHIPPED.get(VERSION, ()):
        label = f"rocketmq-{VERSION}-{name}"
        with tempfile.TemporaryDirectory() as work:
            folder = arguments.out / label if arguments.folders else Path(work) / label
            make(recipe(name), folder, Path(work))
            if not arguments.folders:
                pack(folder, arguments.out / f"{label}.tar.xz")


if __name__ == "__main__":
    main()
