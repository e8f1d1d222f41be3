"""dump, recover, rebuild and verify on stores that a real broker wrote."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import golden
from helpers.program_call import Call, call_program
from tandemlog_server.cli import app
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore

pytestmark = pytest.mark.golden

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=[each for each in golden.stores() if each.source.is_file()], ids=str)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> golden.GoldenCopy:
    store: golden.Golden = request.param
    return store.copy(tmp_path)


@pytest.fixture
def run(
    copy: golden.GoldenCopy,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    sizes = [
        f"--{name.replace('_', '-')}={copy.sizes[name]}"
        for name in ("index_slots", "index_entries", "queue_file_size")
    ]

    def call(command: str, *arguments: str, store: Path = copy.store) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, command, store, *arguments, *sizes)

    return call


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_dump_shows_what_rocketmq_reads(run: Run, copy: golden.GoldenCopy) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")}
    code, out, err = run("dump", "--what", "messages", "--format", "jsonl")
    assert code == 0
    assert "stopped at offset" in err
    found = objects(out)
    expected = copy.expected("messages")
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert {key: mine[key] for key in theirs} == theirs
    for what in ("queues", "index", "checkpoint", "epochs"):
        assert run("dump", "--what", what)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")} == before


def test_recover_then_verify_then_rebuild(run: Run, copy: golden.GoldenCopy) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")}
    code, out, _ = run("recover", "--dry-run")
    assert code == 0
    assert "nothing was changed" in out
    assert {path: path.stat().st_mtime_ns for path in copy.store.rglob("*")} == before
    code, out, _ = run("recover", "--format", "jsonl")
    (report,) = objects(out)
    assert code == 0
    assert report["log_end"] > 0
    assert not (copy.store / "abort").exists()
    code, out, _ = run("verify")
    assert code == 0
    assert "everything holds" in out
    code, out, _ = run("rebuild")
    assert code == 0
    assert "queue files and" in out
    (report,) = objects(run("verify", "--format", "jsonl")[1])
    assert report["holds"]
    units = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"])
        for row in objects(run("dump", "--what", "queues", "--format", "jsonl")[1])
    }
    expected = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"])
        for row in copy.expected("queues")
    }
    assert units == expected


def test_only_the_queues(run: Run, copy: golden.GoldenCopy) -> None:
    run("recover")
    index = {path: path.stat().st_ino for path in (copy.store / "index").iterdir()}
    code, out, _ = run("rebuild", "--queues", "--format", "jsonl")
    assert code == 0
    assert objects(out)[0]["index"] is False
    assert {path: path.stat().st_ino for path in (copy.store / "index").iterdir()} == index


def test_a_flipped_bit_is_named(run: Run, copy: golden.GoldenCopy) -> None:
    run("recover")
    third = copy.expected("messages")[2]
    log = min((copy.store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[third["physical_offset"] + 95] ^= 1  # in the body
    log.write_bytes(data)
    code, out, err = run("verify")
    assert code == 1
    assert str(log) in err
    assert str(third["physical_offset"]) in err
    assert len(err.splitlines()) == 1
    assert "fault:" in out


def test_two_stores_are_compared(run: Run, copy: golden.GoldenCopy, tmp_path: Path) -> None:
    run("recover")
    twin = tmp_path / "twin"
    shutil.copytree(copy.store, twin)
    code, out, _ = run("verify", "--against", str(twin))
    assert code == 0
    assert "they are the same" in out
    offset = copy.expected("messages")[3]["physical_offset"]
    log = min((twin / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[offset + 95] ^= 1
    log.write_bytes(data)
    code, out, err = run("verify", "--against", str(twin), "--format", "jsonl")
    assert code == 1
    (report,) = objects(out)
    assert (report["holds"], report["against"]["holds"]) == (True, False)
    assert str(offset + 95) in err
    assert len(err.splitlines()) == 1


def test_a_store_in_use(run: Run, copy: golden.GoldenCopy) -> None:
    sizes = copy.sizes
    store = MessageStore.open(
        StoreConfig(
            copy.store,
            queue_file_size=sizes["queue_file_size"],
            index_slots=sizes["index_slots"],
            index_entries=sizes["index_entries"],
        )
    )
    try:
        for command in (["recover"], ["recover", "--dry-run"], ["rebuild"]):
            code, _, err = run(*command)
            assert code == 7
            assert f"pid {os.getpid()}" in err
            assert len(err.splitlines()) == 1
    finally:
        store.close()


def test_index_sizes_that_do_not_fit(
    copy: golden.GoldenCopy,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for command in ("dump --what index", "recover", "rebuild", "verify"):
        name, *options = command.split()
        monkeypatch.setattr("sys.argv", ["tandemlog", name, str(copy.store), *options])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert ended.value.code == 7
        err = capfd.readouterr().err
        assert "index_slots and index_entries" in err
        assert len(err.splitlines()) == 1


COMMANDS = ("dump", "recover", "recover --dry-run", "rebuild", "verify")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """A command with a store that no fixture made."""

    def run(command: str, *arguments: str | Path) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, *command.split(), *arguments)

    return run


def new_store(directory: Path) -> Path:
    """Ours, stopped cleanly before the first message."""
    MessageStore.open(StoreConfig(directory)).close()
    return directory


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_no_store_is_left_alone(call: Call, tmp_path: Path, command: str) -> None:
    folder = tmp_path / "somewhere"
    (folder / "tandemlog").mkdir(parents=True)  # as in a checkout of this project
    (folder / "commitlog").write_bytes(b"no folder")
    code, out, err = call(command, folder)
    assert (code, out) == (7, "")
    assert err == f"tandemlog: {folder} is not a store: it has no commitlog folder\n"
    assert {path.name for path in folder.rglob("*")} == {"tandemlog", "commitlog"}


def test_the_other_folder_is_no_store(call: Call, tmp_path: Path) -> None:
    store, other = new_store(tmp_path / "store"), tmp_path / "other"
    other.mkdir()
    code, out, err = call("verify", store, "--against", other)
    assert (code, out) == (7, "")
    assert err == f"tandemlog: {other} is not a store: it has no commitlog folder\n"


@pytest.mark.parametrize("command", [each for each in COMMANDS if each != "rebuild"])
def test_a_store_without_a_message_is_one(call: Call, tmp_path: Path, command: str) -> None:
    store = new_store(tmp_path / "store")
    assert not (store / "commitlog").exists()
    assert call(command, store)[0] == 0


def test_a_store_whose_log_lies_elsewhere_is_one(call: Call, tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    assert call("verify", tmp_path)[0] == 0


def test_nothing_to_compare_is_not_the_same(call: Call, tmp_path: Path) -> None:
    store, other = new_store(tmp_path / "store"), new_store(tmp_path / "other")
    code, out, err = call("verify", store, "--against", other)
    assert code == 1
    assert "the same" not in out
    assert "log 0..0, 0 queue entries, 0 index entries: nothing was compared" in out
    assert len(err.splitlines()) == 1
    assert f"nothing was compared: {store} and {other}" in err
    code, out, _ = call("verify", store, "--against", other, "--format", "jsonl")
    assert code == 1
    (report,) = objects(out)
    assert (report["holds"], report["against"]["holds"]) == (True, False)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", [".", "commitlog"])
def test_a_store_that_may_not_be_looked_into(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, closed: str
) -> None:
    store = new_store(tmp_path / "store")
    stat = os.stat

    # root may look into everything, so the mode of a folder would prove nothing
    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if path == store / closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr("os.stat", refuse)
    code, out, err = call(command, store)
    assert (code, out) == (7, "")
    reason = "Permission denied; run it as the owner of the files"
    assert err == f"tandemlog: {store / closed}: {reason}\n"
