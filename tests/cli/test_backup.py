"""`backup` of a stored folder: what is new, once; `list` and `verify` say what is there."""

import json
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tandemlog
from helpers.cli_node import serve
from helpers.program_call import Call, call_program
from helpers.stored_folder import SIZES, Folder
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.compare_stores import compare

if TYPE_CHECKING:
    from tandemlog_server.node.node import Node


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path, sizes: tuple[str, ...] = ()) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, *arguments, *sizes)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "store")
    made.put(40, epoch=2)
    return made


def row(out: str) -> dict[str, Any]:
    [line] = out.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def take(call: Call, folder: Folder, url: Path) -> dict[str, Any]:
    code, out, err = call("backup", folder.directory, url, "-f", "jsonl", sizes=SIZES)
    assert (code, err) == (0, "")
    return row(out)


def test_a_backup_is_restored_to_the_same_store(call: Call, folder: Folder, tmp_path: Path) -> None:
    url, out = tmp_path / "backup", tmp_path / "restored"
    first = take(call, folder, url)
    assert first["begin"] == 0
    assert call("restore", url, "--dir", out, sizes=SIZES)[0] == 0
    found = compare(folder.config, replace(folder.config, directory=out))
    assert [str(each) for each in found.faults] == []
    store = MessageStore.open(replace(folder.config, directory=out))
    try:
        assert store.consumer_offsets.offset("G", "T", 0) == 40
        assert store.log.wrote.value == first["end"]
    finally:
        store.close()


def test_a_second_backup_moves_what_is_new(call: Call, folder: Folder, tmp_path: Path) -> None:
    url = tmp_path / "backup"
    first = take(call, folder, url)
    assert take(call, folder, url)["put_objects"] == 0
    folder.put(2)
    second = take(call, folder, url)
    assert second["end"] > first["end"]
    assert second["put_bytes"] < first["put_bytes"] / 2
    code, out, _ = call("backup", "list", url, "-f", "jsonl")
    assert code == 0
    ends = [json.loads(line)["end"] for line in out.splitlines()]
    assert ends == [second["end"], first["end"]]
    code, out, _ = call("backup", "verify", url, "-f", "jsonl")
    assert (code, row(out)["records"], row(out)["faults"]) == (0, 42, [])


def test_a_running_node_is_backed_up_while_it_takes_messages(call: Call, tmp_path: Path) -> None:
    url, out = tmp_path / "backup", tmp_path / "restored"
    started: Future[Node] = Future()
    stop: Future[None] = Future()
    thread = threading.Thread(target=serve, args=(tmp_path / "node", started, stop))
    thread.start()
    try:
        endpoint = started.result(60).endpoints.advertise
        with tandemlog.Admin(endpoint) as admin, tandemlog.Producer(endpoint) as producer:
            admin.create_topic("T", queues=1)
            producer.send_many("T", [b"%d" % each for each in range(500)])
            code, text, err = call("backup", endpoint, url, "-f", "jsonl")
            assert (code, err) == (0, "")
            first = row(text)
            producer.send_many("T", [b"more"])
            code, text, _ = call("backup", f"node:{endpoint}", url, "-f", "jsonl")
            second = row(text)
        assert code == 0
        assert second["end"] > first["end"] > 0
    finally:
        stop.set_result(None)
        thread.join(60)
    sizes = ("--index-slots=500", "--index-entries=2000", "--queue-file-size=8000")
    assert call("restore", url, "--dir", out, sizes=sizes)[0] == 0
    config = StoreConfig(out, index_slots=500, index_entries=2_000, queue_file_size=8_000)
    found = compare(config, replace(config, directory=tmp_path / "node"))
    assert [str(each) for each in found.faults] == []


def test_a_node_that_does_not_answer_is_named(call: Call, tmp_path: Path) -> None:
    code, out, err = call("backup", "127.0.0.1:1", tmp_path / "backup")
    assert (code, out) == (3, "")
    assert "127.0.0.1:1" in err
    assert len(err.splitlines()) == 1


def test_what_is_older_is_pruned_and_the_rest_is_still_restored(
    call: Call, folder: Folder, tmp_path: Path
) -> None:
    url, out = tmp_path / "backup", tmp_path / "restored"
    take(call, folder, url)
    folder.put(40)
    last = take(call, folder, url)
    before = last["end"] - 1
    dry = ("backup", "prune", url, "--before", str(before), "--grace", "now", "-f", "jsonl")
    files = sorted(url.rglob("*"))
    code, text, _ = call(*dry, "--dry-run")
    would = row(text)
    assert (code, would["begun"]) == (0, 0)
    assert would["begin"] > 8192
    assert sorted(url.rglob("*")) == files
    code, text, _ = call(*dry)
    assert (code, row(text) | {"dry_run": True}) == (0, would)
    assert len(sorted(url.rglob("*"))) < len(files)
    code, text, _ = call("backup", "verify", url, "-f", "jsonl")
    assert (code, row(text)["begin"], row(text)["faults"]) == (0, would["begin"], [])
    assert call("restore", url, "--dir", out, sizes=SIZES)[0] == 0
    store = MessageStore.open(replace(folder.config, directory=out))
    try:
        assert store.log.min_offset == would["begin"]
        assert store.queues.max_offset(store.queue_table.get("T", 0)) == 80
        assert store.consumer_offsets.offset("G", "T", 0) == 80
    finally:
        store.close()


def test_what_is_young_is_not_deleted(call: Call, folder: Folder, tmp_path: Path) -> None:
    url = tmp_path / "backup"
    take(call, folder, url)
    folder.put(40)
    last = take(call, folder, url)
    code, text, _ = call("backup", "prune", url, "--before", str(last["end"]), "-f", "jsonl")
    assert code == 0
    assert row(text)["begin"] > 0
    assert (row(text)["manifests"], row(text)["objects"]) == (0, 0)
    assert len(list((url / "manifests").iterdir())) == 3


def test_objects_that_are_damaged_or_missing_are_named(
    call: Call, folder: Folder, tmp_path: Path
) -> None:
    url = tmp_path / "backup"
    take(call, folder, url)
    first, second = sorted((url / "log").iterdir())[:2]
    content = bytearray(first.read_bytes())
    content[100] ^= 1
    first.unlink()
    first.write_bytes(content)
    second.unlink()
    code, out, _ = call("backup", "verify", url)
    assert code == 1
    assert f"log/{first.name} has other content than its name says" in out
    assert second.name in out
    assert "FAULTS FOUND" in out


def test_another_log_is_refused(call: Call, folder: Folder, tmp_path: Path) -> None:
    url, other = tmp_path / "backup", Folder(tmp_path / "other")
    take(call, folder, url)
    other.put(50, epoch=2)
    code, out, err = call("backup", other.directory, url, sizes=SIZES)
    assert (code, out) == (5, "")
    assert "is not backed up to" in err
    assert "of two masters" in err or "no term in common" in err


def test_an_empty_place_has_nothing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = call("backup", "list", tmp_path / "empty")
    assert code == 0
    assert "has no manifest" in err
    assert call("backup", "verify", tmp_path / "empty")[0] == 4
    assert call("backup", tmp_path / "empty", tmp_path / "x")[0] == 7
