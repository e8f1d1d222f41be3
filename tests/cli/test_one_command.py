"""`verify`, `rebuild`, `export`, `restore`: one command for each job, whichever engine does it.

What either engine says of a damaged store alone, the command says too.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.log_builder import LogBuilder, flip, overwrite
from helpers.program_call import Call, call_program
from tandemlog.format.record.record import encode_record
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare as compare_logs
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.verify import verify

HERE = InProcess()
FILE = 8192
QUEUE_FILE = 2000
SIZES = ("--index-slots", "20", "--index-entries", "100", "--queue-file-size", str(QUEUE_FILE))

Damage = Callable[[LogBuilder], object]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """Five files with queues and an index, as a broker leaves them, and a `copy` beside it."""
    builder = LogBuilder(tmp_path / "store", FILE)
    while builder.end < 4 * FILE + 3000:
        number = len(builder.records)
        body = bytes([number % 250 + 1]) * (30 + number % 40)
        builder.put(f"T{number % 3}", number % 2, body)
    store = builder.write()
    sizes = RebuildOptions(queue_file_size=QUEUE_FILE, index_slots=20, index_entries=100)
    rebuild(HERE, store, store, sizes)
    shutil.copytree(store, tmp_path / "copy")
    return builder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path, sizes: tuple[str, ...] = SIZES) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, *arguments, *sizes)

    return run


def config(store: Path) -> StoreConfig:
    return StoreConfig(store, queue_file_size=QUEUE_FILE, index_slots=20, index_entries=100)


def stale(offset: int) -> bytes:
    return encode_record(topic="Old", queue_id=4, queue_offset=9, body=b"o", physical_offset=offset)


def a_bit(place: int, number: int = 85) -> Damage:
    return lambda log: flip(log, log.records[number].physical_offset + place, 5)


def a_missing_file(number: int) -> Damage:
    return lambda log: log.path(number * FILE).unlink()


def a_short_file(offset: int) -> Damage:
    return lambda log: os.truncate(log.path(offset), offset % FILE)


def bytes_at_end(data: bytes, gap: int = 0) -> Damage:
    return lambda log: overwrite(log, log.end + gap, data)


def without_queues(damage: Damage) -> Damage:
    def both(log: LogBuilder) -> None:
        shutil.rmtree(log.store / "consumequeue")
        damage(log)

    return both


def zeros(number: int, behind: int) -> Damage:
    def write(log: LogBuilder) -> None:
        record = log.records[number]
        overwrite(log, record.physical_offset + behind, bytes(record.size - behind))

    return write


def a_bit_of(folder: str) -> Damage:
    def turn(log: LogBuilder) -> None:
        path = min(each for each in (log.store / folder).rglob("*") if each.is_file())
        data = bytearray(path.read_bytes())
        data[45] ^= 4
        path.write_bytes(data)

    return turn


DAMAGES: dict[str, Damage] = {
    "none": lambda log: None,
    **{f"byte {place} of a record": a_bit(place) for place in (0, 4, 8, 20, 28, 40, 84, 90, 110)},
    "the last record": a_bit(100, -1),
    **{f"file {number} missing": a_missing_file(number) for number in (0, 1, 3, 4)},
    "a short first file": a_short_file(5000),
    "a short file": a_short_file(2 * FILE + 5000),
    "a short last file": a_short_file(4 * FILE + 2900),
    "a stale record at the end": bytes_at_end(stale(123)),
    "a stale record behind the end": bytes_at_end(stale(123), 77),
    "what a broker without a map leaves": bytes_at_end(b"half of a record" + stale(123)),
    "no queues": without_queues(lambda log: None),
    "no queues, a torn end": without_queues(zeros(-1, 100)),
    "no queues, a damaged end": without_queues(a_bit(100, -1)),
    "no queues, a damaged record": without_queues(a_bit(100, -7)),
    "no queues, zeros for a record": without_queues(zeros(-7, 0)),
    "a queue": a_bit_of("consumequeue"),
    "the index": a_bit_of("index"),
}

each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))


def places(document: dict[str, Any]) -> set[tuple[str, int]]:
    return {(each["file"], each["position"]) for each in document["faults"]}


@each_damage
def test_verify_says_what_either_engine_says(log: LogBuilder, call: Call, damage: Damage) -> None:
    damage(log)
    refused = ""
    try:
        report = verify(config(log.store))
        found, held = {(each.file, each.position) for each in report.faults}, report.holds
    except StoreError as error:
        found, held, refused = set(), False, str(error)
    job = audit(HERE, log.store)
    found |= {(each.file, each.offset) for each in job.findings if each.fault}
    code, out, err = call("verify", log.store, "--format", "jsonl")
    document = json.loads(out)
    assert places(document) == found
    assert document["holds"] == (held and job.holds)
    assert [each["detail"] for each in document["findings"]] == [e.detail for e in job.findings]
    assert set(job.notes) <= set(document["notes"])
    assert code == (7 if refused else 0 if document["holds"] else 1)
    assert len(err.splitlines()) == bool(code)
    assert refused in err


@each_damage
def test_against_says_what_either_engine_says(log: LogBuilder, call: Call, damage: Damage) -> None:
    damage(log)
    whole = log.store.parent / "copy"
    refused = ""
    try:
        report = compare(config(whole), config(log.store))
        found, held = {(each.file, each.position) for each in report.faults}, report.holds
    except StoreError as error:
        found, held, refused = set(), False, str(error)
    job = compare_logs(HERE, whole, log.store)
    found |= {(each.file, each.offset) for each in job.findings if each.fault}
    arguments = ("verify", whole, "--against", log.store, "--format", "jsonl")
    code, out, err = call(*arguments, "--exact")
    document = json.loads(out)["against"]
    assert places(document) == found
    assert document["holds"] == (held and job.holds)
    assert code == (7 if refused else 0 if document["holds"] else 1)
    assert refused in err
    # without --exact: whatever the store's own tool says, and the same verdict
    code, out, _ = call(*arguments)
    assert json.loads(out)["against"]["holds"] == held
    assert code == (7 if refused else 0 if held else 1)


def test_a_fault_names_the_message_once(log: LogBuilder, call: Call) -> None:
    a_bit(100)(log)
    bad = log.records[85]
    name = f"message {bad.queue_offset} of {bad.topic}/{bad.queue_id}: body_crc"
    code, out, err = call("verify", log.store)
    assert code == 1
    assert out.count(f"offset {bad.physical_offset}: ") == 1
    assert name in out
    assert name in err


def test_a_whole_log_is_read_once(
    log: LogBuilder, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*arguments: object, **named: object) -> None:
        raise AssertionError("a second pass over a log that is whole")

    monkeypatch.setattr("tandemlog.logs.jobs.audit.audit_span", look)
    assert call("verify", log.store)[0] == 0


def test_a_replica_may_lag(log: LogBuilder, call: Call, tmp_path: Path) -> None:
    last = log.records[-3]
    overwrite(log, last.physical_offset, bytes(log.end - last.physical_offset))
    shutil.rmtree(log.store / "consumequeue")
    sizes = RebuildOptions(index=False, queue_file_size=QUEUE_FILE)
    rebuild(HERE, log.store, log.store, sizes)
    shutil.rmtree(log.store / "index")
    whole = tmp_path / "copy"
    shutil.rmtree(whole / "index")
    for options in ([], ["--spark", "none"]):
        code, out, err = call("verify", whole, "--against", log.store, *options)
        assert (code, err) == (0, "")
        assert "they are the same" in out
    logs = (whole / "commitlog", "--against", log.store / "commitlog")
    assert call("verify", *logs)[0] == 0
    assert call("verify", *logs, "--exact")[0] == 1
    code, out, _ = call("verify", whole, "--against", log.store, "--exact")
    assert code == 1
    assert f"differs: {log.path(last.physical_offset)}: offset {last.physical_offset}" in out


@pytest.mark.parametrize("options", [[], ["--against", "copy/commitlog"]], ids=["alone", "two"])
def test_a_folder_of_log_files(
    log: LogBuilder,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("verify", "store/commitlog", *options)
    assert (code, err) == (0, "")
    assert "only the log was checked, not queues, index and small files" in out
    assert f"log 0..{log.end}, {len(log.records)} records: everything holds" in out
    a_bit(100)(log)
    code, out, _ = call("verify", "store/commitlog", *options, "--format", "json")
    document = json.loads(out)
    assert code == 1
    assert (document["holds"], document["tail"]) == (False, "zeros")
    assert sum(document["topics"].values()) == len(log.records) - 1
    assert [each["offset"] for each in document["findings"]] == [log.records[85].physical_offset]


def test_a_fifo_for_a_file_is_a_fault_and_no_wait(log: LogBuilder, call: Call) -> None:
    path = min((log.store / "consumequeue" / "T0" / "0").iterdir())
    path.unlink()
    os.mkfifo(path)
    code, out, _ = call("verify", log.store)
    assert code == 1
    assert f"fault: {path}: " in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["verify", "STORE", "--exact"], 2, "--exact needs --against"),
        (["verify", "STORE/none"], 2, "is not a folder"),
        (["verify", "node:127.0.0.1:1"], 3, "unavailable"),
        (["verify", "STORE", "--against", "node:127.0.0.1:1"], 3, "unavailable"),
        (["rebuild", "STORE", "--spark", "local[1]"], 2, "need --out DIR: in place"),
        (["rebuild", "STORE", "--no-index-tags"], 2, "need --out DIR: in place"),
        (["rebuild", "STORE", "--out", "STORE"], 2, "exists already"),
        (["rebuild", "node:127.0.0.1:1"], 2, "is not a folder"),
        (["export", "STORE/none", "--out", "x"], 2, "is not a folder"),
        (["restore", "STORE", "--out", "x"], 2, "no manifest.json"),
    ],
)
def test_what_is_wrong_is_one_line(
    log: LogBuilder, call: Call, arguments: list[str], code: int, said: str
) -> None:
    words = [each.replace("STORE", str(log.store)) for each in arguments]
    ended, out, err = call(*words)
    assert (ended, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_rebuild_elsewhere_writes_what_rebuild_in_place_writes(
    log: LogBuilder, call: Call, tmp_path: Path
) -> None:
    code, out, _ = call("rebuild", log.store, "--out", tmp_path / "out", "--format", "jsonl")
    assert code == 0
    assert json.loads(out)["records"] == len(log.records)
    assert call("rebuild", log.store)[0] == 0
    elsewhere = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("0*")}
    assert elsewhere
    for path in elsewhere:
        if (tmp_path / "out" / path).is_file():
            data = (log.store / path).read_bytes()
            assert (tmp_path / "out" / path).read_bytes() == data


OLD = {
    "audit": ("verify STORE --spark MASTER", ("STORE",)),
    "compare": ("verify STORE --against OTHER --exact --spark MASTER", ("STORE", "COPY")),
    "rebuild": ("rebuild STORE --out DIR --spark MASTER", ("STORE", "--out", "OUT")),
    "export": ("export STORE --out DIR --spark MASTER", ("STORE", "--out", "EXPORT")),
    "restore": ("restore DIR --out STORE --spark MASTER", ("EXPORT", "--out", "AGAIN")),
}


def test_old_names_work_and_say_the_new_one(log: LogBuilder, call: Call, tmp_path: Path) -> None:
    _, usage, _ = call("pipeline", "--help", sizes=())
    assert [name for name in (*OLD, "stats", "demo") if f"\n  {name} " in usage] == [
        "stats",
        "demo",
    ]
    for name, (now, arguments) in OLD.items():
        words = [
            {"STORE": str(log.store), "COPY": str(tmp_path / "copy")}.get(
                each, each if each.startswith("--") else str(tmp_path / each)
            )
            for each in arguments
        ]
        code, out, err = call("pipeline", name, *words, "--master", "none", "--format", "json")
        assert code == 0, err
        assert json.loads(out)["job"] == name
        assert err == f"`tandemlog pipeline {name}` is now `tandemlog {now}`\n"
    a_bit(100)(log)
    code, _, err = call("pipeline", "audit", log.store, "--master", "none", "--format", "json")
    assert code == 1
    assert "is now" in err


WITHOUT = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from tandemlog_server.cli.app import main
main()
"""


def without(missing: tuple[str, ...], *arguments: object) -> "subprocess.CompletedProcess[str]":
    program = WITHOUT.format(missing=missing)
    command = [sys.executable, "-c", program, *map(str, arguments), *SIZES]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_they_need_neither_spark_nor_arrow_beyond_what_they_do(
    log: LogBuilder, tmp_path: Path
) -> None:
    spark, arrow = ("pyspark", "py4j"), ("pyspark", "py4j", "pyarrow")
    a_bit(100)(log)
    assert without(arrow, "verify", log.store).returncode == 1
    whole, out = tmp_path / "copy", tmp_path / "out"
    done = without(arrow, "verify", whole, "--against", whole / "commitlog")
    assert done.returncode == 0, done.stderr
    assert without(arrow, "rebuild", whole, "--out", out / "derived").returncode == 0
    assert without(spark, "export", whole, "--out", out / "export").returncode == 0
    assert without(spark, "restore", out / "export", "--out", out / "again").returncode == 0
    done = without(arrow, "export", whole, "--out", out / "other")
    assert done.returncode == 2
    assert "pyarrow is not installed: pip install 'tandemlog[arrow]'" in done.stderr
    done = without(spark, "verify", whole, "--spark", "local[1]")
    assert done.returncode == 2
    assert "pyspark is not installed: pip install 'tandemlog[spark]'" in done.stderr


class Session(InProcess):
    """In the place of a session of Spark."""

    def stop(self) -> None:
        masters.append("stopped")


masters: list[str] = []


@pytest.fixture
def spark_is_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs for Spark run in this process."""
    masters.clear()

    def spark_session(name: str, master: str) -> Session:
        masters.append(master)
        return Session()

    module = types.SimpleNamespace(spark_session=spark_session)

    def loaded(name: str) -> object:
        return module if name == "tandemlog.spark.session" else importlib.import_module(name)

    monkeypatch.setattr("tandemlog_server.cli.shared.jobs.loaded", loaded)
    yield
    assert masters == ["local[2]", "stopped"]


ON_SPARK = ("--spark", "local[2]", "--format", "jsonl")


@each_damage
def test_on_spark_it_says_what_the_jobs_say(
    log: LogBuilder, call: Call, spark_is_here: None, damage: Damage
) -> None:
    damage(log)
    whole = log.store.parent / "copy"
    checked, compared = audit(HERE, log.store), compare_logs(HERE, log.store, whole)
    code, out, _ = call("verify", log.store, "--against", whole, "--exact", *ON_SPARK)
    document = json.loads(out)
    for found, job in ((document, checked), (document["against"], compared)):
        faults = {(each.file, each.offset) for each in job.findings if each.fault}
        assert places(found) == faults
        assert found["holds"] == job.holds
        assert len(found["findings"]) == len(job.findings)
    assert document["records"] == checked.summary["records"]
    assert code == (0 if checked.holds and compared.holds else 1)
    assert "only the log was checked, not queues, index and small files" in document["notes"]


def test_on_spark_a_replica_may_lag(log: LogBuilder, call: Call, spark_is_here: None) -> None:
    """Up to the confirm offset, which queues and recovery point of the stores tell."""
    last = log.records[-3]
    overwrite(log, last.physical_offset, bytes(log.end - last.physical_offset))
    shutil.rmtree(log.store / "consumequeue")
    sizes = RebuildOptions(index=False, queue_file_size=QUEUE_FILE)
    rebuild(HERE, log.store, log.store, sizes)
    code, out, _ = call("verify", log.store, "--against", log.store.parent / "copy", *ON_SPARK)
    found = json.loads(out)["against"]
    assert (code, found["holds"], found["end"]) == (0, True, last.physical_offset)


def test_on_spark_a_failed_fsync_is_a_fault_too(
    log: LogBuilder, call: Call, spark_is_here: None
) -> None:
    flag = log.store / "tandemlog" / "fsync-failed"
    flag.parent.mkdir()
    flag.write_bytes(b"1")
    code, out, _ = call("verify", log.store, *ON_SPARK)
    assert code == 1
    assert [each["file"] for each in json.loads(out)["faults"]] == [str(flag)]


@pytest.mark.parametrize("command", ["rebuild", "export"])
def test_jobs_run_where_spark_says(
    log: LogBuilder, call: Call, tmp_path: Path, spark_is_here: None, command: str
) -> None:
    code, out, _ = call(command, log.store, "--out", tmp_path / "out", *ON_SPARK)
    assert code == 0
    assert json.loads(out)["records"] == len(log.records)
