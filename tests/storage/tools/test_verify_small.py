"""verify on a small store of ours: the small files, tags by index file, descriptors."""

import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.flipped_stores import CONFIG, TOPICS, base_store
from fakes.stores import DIRECTORY
from tandemlog.format.files.index_layout import key_hash, tag_key
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.clock import SystemClock
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.file_pool import FilePool
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.index.index_file import IndexFile, create_index_file
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.verify import verify


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    for path, data in base_store(clean=True).contents.items():
        target = root / path.relative_to(DIRECTORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "store")


def faults(store: Path) -> list[str]:
    return [str(fault) for fault in verify(replace(CONFIG, directory=store)).faults]


def test_looking_leaves_no_descriptor_open(store: Path) -> None:
    with (store / "checkpoint").open() as one:
        assert open_files(store) == [one.name]
    for _ in range(3):
        assert faults(store) == []
    assert open_files(store) == []


def open_files(folder: Path) -> list[str]:
    """The files in `folder` that this process has open; what other tests left open counts not."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # one that was closed meanwhile
            paths.append(str(link.readlink()))
    return [path for path in paths if path.startswith(str(folder))]


def test_each_index_file_may_have_tags_or_not(store: Path) -> None:
    """A broker of before 5.4 makes the newest files again, and without entries of tags."""
    files = sorted((store / "index").iterdir())
    assert len(files) > 1
    without_tags(store, files[-1], files[-2])
    assert faults(store) == []
    # one that is missing where the file has the others is still named
    data = bytearray(files[0].read_bytes())
    data[36:40] = (int.from_bytes(data[36:40]) - 1).to_bytes(4)
    files[0].write_bytes(data)
    assert any("there is no entry with hash" in each for each in faults(store))


def without_tags(store: Path, path: Path, before: Path) -> None:
    """The index file made again, but for its entries of tags."""
    pool = FilePool(store / "index", RealFileSystem())
    sizes = CONFIG.index_slots, CONFIG.index_entries
    opened = [IndexFile(each, pool, *sizes) for each in (path, before)]
    for each in opened:
        each.load()
    entries = opened[0].read(1, opened[0].header.next_entry)
    tags = [key_hash(topic, tag_key(tag)) for topic in TOPICS for tag in "ab"]
    kept = entries[~np.isin(entries["key_hash"], tags)]
    assert 0 < len(kept) < len(entries)
    log = b"".join(each.read_bytes() for each in sorted((store / "commitlog").iterdir()))
    offsets = kept["physical_offset"].astype(np.int64)
    times = [decode_record(log, at).store_timestamp for at in offsets.tolist()]
    pool.close()
    path.unlink()
    made = create_index_file(path, store / "tandemlog", pool, *sizes, opened[1].header)
    made.insert(kept["key_hash"].astype(np.int32), offsets, np.array(times, np.int64))
    made.write_back()
    pool.close()


SMALL = [
    "checkpoint", "config/topics.json", "config/topics.json.bak", "config/consumerOffset.json",
    "epochFileCheckpoint", "epochFileCheckpoint.bak", "lock", "tandemlog/fsync-failed",
    "tandemlog/index.json", "tandemlog/producers", "tandemlog/recovery.json",
    "tandemlog/session.json",
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_a_small_file_that_is_damaged_is_named(store: Path, name: str) -> None:
    path = store / name
    path.write_bytes(bytes([path.read_bytes()[0] ^ 0x80]) + path.read_bytes()[1:])
    assert any(each.startswith(f"{path}: ") for each in faults(store))


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop"])
@pytest.mark.parametrize(
    "name",
    [*SMALL, "commitlog/00000000000000000000", "consumequeue/orders/0/00000000000000000000",
     "index/20231114221323000", "abort", "tandemlog/reserve", "tandemlog/set-aside"],
)  # fmt: skip
def test_what_is_no_file_is_an_error_that_names_it(store: Path, name: str, kind: str) -> None:
    path = store / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    try:
        found = faults(store)
    except StoreError as fault:
        found = [str(fault)]
    # nobody reads the reserve; RocketMQ passes over folders beside its files, and so do we
    passed_over = name == "tandemlog/reserve" or (kind == "directory" and "/0000" in name)
    assert passed_over or any(path.name in each for each in found), found
    opened = ""
    try:
        MessageStore.open(replace(CONFIG, directory=store), clock=SystemClock()).close()
    except StoreError as fault:
        opened = str(fault)
    assert not opened or path.name in opened or path.parent.name in opened


def test_names_that_a_broker_took_are_no_damage(tmp_path: Path) -> None:
    """RocketMQ 5 takes groups of up to 255 characters; here new ones have 120."""
    group = "g" * 134
    config = tmp_path / "config"
    config.mkdir()
    tables = {
        "subscriptionGroup.json": ("subscriptionGroupTable", {"groupName": group}, group),
        "topics.json": (
            "topicConfigTable",
            {"topicName": "t" * 200, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
            "t" * 200,
        ),
    }
    for file, (table, bean, name) in tables.items():
        (config / file).write_text(json.dumps({table: {name: bean}}))
    offsets = {"offsetTable": {f"T@{group}": {"0": 1}}}
    (config / "consumerOffset.json").write_text(json.dumps(offsets))
    assert verify(StoreConfig(tmp_path)).faults == []
    store = MessageStore.open(StoreConfig(tmp_path, commit_log_file_size=1 << 20))
    assert group in store.groups.names()
    assert not store.groups.ensure(group, 1)
    assert store.consumer_offsets.offset(group, "T", 0) == 1
    store.close()
