"""`restore` of an archive: a node's folder, as of now or of an earlier moment."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fakes.archives import archive, state_of
from fakes.stores import CONFIG, Bench
from helpers.program_call import Call, call_program
from tandemlog.archive.folder_store import FolderStore
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore

SIZES = ("--index-slots=16", "--index-entries=40", "--queue-file-size=400")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, "restore", *arguments, *SIZES)

    return run


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """40 messages, one a second, in the archive of this test; tables were taken after the 20th."""
    made = Bench()
    made.store.become_master(3)
    states = []
    for number in range(40):
        if number == 20:
            made.settle()
            made.store.groups.ensure("G", made.clock.now_ms())
            made.store.consumer_offsets.commit("G", "T", 0, 19)
            states.append(state_of(made))
        made.put(size=300)
        made.clock.advance(1.0)
    made.settle()
    archive(made, FolderStore(tmp_path / "archive"), states)
    return made


def opened(folder: Path) -> MessageStore:
    return MessageStore.open(
        StoreConfig(folder, queue_file_size=400, index_slots=16, index_entries=40)
    )


def row(out: str) -> dict[str, Any]:
    [line] = out.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_all_of_an_archive(bench: Bench, call: Call, tmp_path: Path) -> None:
    code, out, err = call(tmp_path / "archive", "--dir", tmp_path / "node", "-f", "jsonl")
    assert (code, err) == (0, "")
    said, log = row(out), bench.store.log
    assert (said["begin"], said["end"], said["records"], said["topics"]) == (
        0,
        log.wrote.value,
        40,
        1,
    )
    assert said["notes"] == []
    store = opened(tmp_path / "node")
    try:
        assert store.log.file_size == CONFIG.commit_log_file_size
        assert store.log_identity.history == bench.store.log_identity.history
        assert store.consumer_offsets.offset("G", "T", 0) == 19
        for file in bench.store.log.files:
            size = min(file.base + file.size, log.wrote.value) - file.base
            assert bytes(store.log.read(file.base, size)) == bytes(file.view(0, size))
        assert store.queues.max_offset(store.queue_table.get("T", 0)) == 40
    finally:
        store.close()


def test_an_earlier_moment(bench: Bench, call: Call, tmp_path: Path) -> None:
    """Offsets of groups are no higher than the messages that are there."""
    result = bench.store.reader.get("T", 0, 29, 1, 1 << 20)
    assert result.count == 1
    moment = datetime.fromtimestamp((bench.clock.now_ms() - 10_500) / 1000, UTC)
    code, out, _ = call(
        f"file:{tmp_path / 'archive'}", "--dir", tmp_path / "node", "--until", moment.isoformat()
    )
    assert code == 0
    assert "30 records of 1 topic" in out
    store = opened(tmp_path / "node")
    try:
        assert store.queues.max_offset(store.queue_table.get("T", 0)) == 30
        assert store.consumer_offsets.offset("G", "T", 0) == 19
        end = store.log.wrote.value
    finally:
        store.close()
    code, out, _ = call(
        tmp_path / "archive", "--dir", tmp_path / "again", "--until", end, "-f", "json"
    )
    assert (code, row(out)["records"]) == (0, 30)


def test_before_the_first_tables_no_group_has_an_offset(
    bench: Bench, call: Call, tmp_path: Path
) -> None:
    assert bench.store.log.wrote.value > 5_000
    code, out, _ = call(
        tmp_path / "archive", "--dir", tmp_path / "node", "--until", "5000", "-f", "jsonl"
    )
    assert code == 0
    assert "no tables at or before the end" in row(out)["notes"][0]
    store = opened(tmp_path / "node")
    try:
        assert store.groups.names() == ["G"]
        assert store.consumer_offsets.offset("G", "T", 0) is None
    finally:
        store.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["DIR/archive", "--dir", "DIR/full"], 7, "is not empty"),
        (["DIR/full", "--dir", "DIR/x"], 2, "no manifest.json of an export, no manifests/"),
        (["DIR/archive", "--dir", "DIR/x", "--until", "10"], 4, "no record at or before"),
        (["DIR/archive", "--dir", "DIR/x", "--until", "noon"], 2, "write a log offset, ISO 8601"),
        (["DIR/archive", "--dir", "DIR/x", "--log-only"], 2, "is no export"),
        (["nothing://x", "--dir", "DIR/x"], 2, "nothing"),
    ],
)
@pytest.mark.usefixtures("bench")
def test_what_is_wrong_is_one_line(
    call: Call, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    ended, out, err = call(*(each.replace("DIR", str(tmp_path)) for each in arguments))
    assert (ended, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1
