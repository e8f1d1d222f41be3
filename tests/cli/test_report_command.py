"""`--report FILE` on the jobs, in this process: what is in the file, and that nothing else changes.

The printed output and the exit code are those of the same command without it.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes.log_builder import LogBuilder, flip
from helpers import golden
from helpers.program_call import Call, call_program
from tandemlog.format.files.store_json import loads
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog_server.cli.report import job_report
from tandemlog_server.node import private_files

FILE = 8192
SIZES = ("--index-slots", "20", "--index-entries", "100")
TOPIC = "orders<b>&amp;"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, *arguments)

    return run


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """Three files, with queues, an index, and a group that has consumed a part."""
    builder = LogBuilder(tmp_path / "store", FILE)
    while builder.end < 2 * FILE + 3000:
        number = len(builder.records)
        builder.put(f"T{number % 3}", number % 2, bytes([number % 250 + 1]) * (30 + number % 40))
    builder.write()
    rebuild(InProcess(), builder.store, builder.store, RebuildOptions(True, True, 20, 100, 2000))
    (builder.store / "config").mkdir()
    table = {"T0@billing": {"0": 2}, "gone@billing": {"0": 9}, "T1@slow": {"1": 0}}
    offsets = builder.store / "config" / "consumerOffset.json"
    offsets.write_text(json.dumps({"offsetTable": table}))
    return builder


def same_as_without(call: Call, report: Path, *arguments: str | Path) -> str:
    """What the command prints is the same with --report; returns the report."""
    took = re.compile(r"(took|seconds\S*|\bin) [\d.]+( s)?")
    plain = call(*arguments)
    with_report = call(*arguments, "--report", report)
    assert with_report[0] == plain[0]
    for mine, theirs in zip(with_report[1:], plain[1:], strict=True):
        assert took.sub("", mine) == took.sub("", theirs)
    return report.read_text()


def test_verify_of_a_sound_store(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    text = same_as_without(call, tmp_path / "r.html", "verify", log.store, *SIZES)
    assert "Sound: everything holds" in text
    words = f"tandemlog verify {log.store} --index-slots 20 --index-entries 100"
    assert f"<dd>{words} --report {tmp_path}/r.html</dd>" in text
    assert "<dd>in one process</dd>" in text
    assert re.search(r"<dd>tandemlog \d+\.\d+", text)
    # what is drawn is in the records, which the command without it reads once
    for topic in ("T0", "T1", "T2"):
        count = sum(each.topic == topic for each in log.records)
        size = sum(each.size for each in log.records if each.topic == topic)
        assert (
            f'{topic}</td><td class="number">{count}</td><td class="number">{size:,}</td>' in text
        )
    assert f"{len(log.records)} messages from 2023-11-14 22:13:20 UTC" in text
    assert "Faults by their place in the log: 0 faults, 3 files" in text
    assert oct((tmp_path / "r.html").stat().st_mode & 0o777) == oct(0o666 & ~umask())
    assert [each.name for each in tmp_path.iterdir() if "html" in each.name] == ["r.html"]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_lag_of_groups(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    assert call("verify", log.store, *SIZES, "--report", tmp_path / "r.html")[0] == 0
    text = (tmp_path / "r.html").read_text()
    ends = {
        queue: 1 + max(r.queue_offset for r in log.records if (r.topic, r.queue_id) == queue)
        for queue in (("T0", 0), ("T1", 1))
    }
    for group, (topic, queue_id), committed in (("billing", ("T0", 0), 2), ("slow", ("T1", 1), 0)):
        end = ends[topic, queue_id]
        numbers = "".join(
            f'<td class="number">{each}</td>'
            for each in (queue_id, committed, end, end - committed)
        )
        names = f'<td class="short">{group}</td><td class="short">{topic}</td>'
        assert names + numbers in text
    # the log has nothing of this queue, so it does not say where it ends
    assert "gone" not in text


def test_a_damaged_log(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    bad = next(each for each in log.records[30:] if len(each.body) > 20)
    flip(log, bad.physical_offset + 100)
    text = same_as_without(call, tmp_path / "r.html", "verify", log.store, *SIZES)
    assert "Damaged: " in text
    assert "tandemlog recover COPY --dry-run" in text
    assert f"<title>offset {bad.physical_offset}: message {bad.queue_offset} of {bad.topic}" in text
    percent = 100 * bad.physical_offset / log.end
    assert f'cx="{percent:.3f}%"' in text


def test_damaged_queues_are_built_again(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    queue = next((log.store / "consumequeue" / "T0" / "0").iterdir())
    data = bytearray(queue.read_bytes())
    data[7] ^= 1
    queue.write_bytes(data)
    text = same_as_without(call, tmp_path / "r.html", "verify", log.store, *SIZES)
    assert "The log has no fault here" in text
    assert "<code>tandemlog rebuild STORE</code>" in text
    assert "export COPY" not in text
    # its position is no place in the log
    assert "Faults by their place in the log: 0 faults" in text
    assert str(queue) in text


def test_two_stores(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(log.store, twin)
    command = ("verify", log.store, "--against", twin, *SIZES)
    text = same_as_without(call, tmp_path / "same.html", *command)
    assert "Sound, and the two are the same" in text
    bad = log.records[40]
    flip(log, bad.physical_offset + 100)
    text = same_as_without(call, tmp_path / "differ.html", *command)
    assert re.search(r"Damaged: \d+ faults?; Not the same: \d+ difference", text)
    assert "<code>tandemlog verify</code> on each of them" in text
    assert f'cx="{100 * bad.physical_offset / log.end:.3f}%"' in text


def test_jobs_with_one_result(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    here, report = ("--master", "none"), tmp_path / "r.html"
    text = same_as_without(call, report, "pipeline", "audit", log.store, *here)
    assert "Sound: no fault was found" in text
    assert "Files of the log" in text
    text = same_as_without(call, report, "pipeline", "compare", log.store, log.store, *here)
    assert "<p>Equal</p>" in text
    text = same_as_without(call, report, "pipeline", "waiting", log.store, *here)
    assert "What waits in a log" in text
    for number, (name, *more) in enumerate((("stats",), ("rebuild", "--out"), ("export", "--out"))):
        words = ["pipeline"] if name == "stats" else []
        out = ("--out", tmp_path / f"{name}{number}")
        master = here if name == "stats" else ()
        code, printed, _ = call(*words, name, log.store, *out, *master, *SIZES, "--report", report)
        assert code == 0, printed
        text = report.read_text()
        assert "Messages by topic" in text, more
        assert "T2" in text
    assert (
        call("restore", tmp_path / "export2", "--out", tmp_path / "again", "--report", report)[0]
        == 0
    )
    assert "Restored store" in report.read_text()


def test_stats_draw_time_and_sizes(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    words = ("pipeline", "stats", log.store, "--out", tmp_path / "o", "--master", "none")
    assert call(*words, "--report", report)[0] == 0
    text = report.read_text()
    assert "Messages by store time: a bar is 1 second" in text
    assert "How large records are" in text
    total = sum(each.size for each in log.records if each.topic == "T1")
    assert f"{total:,}" in text


@pytest.mark.golden
@pytest.mark.parametrize("kind", golden.stores(), ids=lambda each: each.label)
def test_a_store_of_a_broker(call: Call, kind: golden.Golden, tmp_path: Path) -> None:
    copy = kind.copy(tmp_path / "golden")
    sizes = [
        word
        for name in ("index_slots", "index_entries", "queue_file_size")
        for word in (f"--{name.replace('_', '-')}", str(copy.sizes[name]))
    ]
    text = same_as_without(call, tmp_path / "r.html", "verify", copy.store, *sizes)
    # what each topic has by RocketMQ's own reading
    topics = {each["topic"] for each in copy.expected("messages")}
    for topic in topics:
        assert topic.replace("<", "&lt;") in text
    offsets = copy.store / "config" / "consumerOffset.json"
    document: Any = loads(offsets.read_bytes()) if offsets.exists() else {}
    assert ("Lag by group" in text) == bool(document.get("offsetTable"))


@pytest.mark.parametrize(
    ("place", "message"),
    [("nowhere/r.html", "there is no folder"), ("store", "that is not a file")],
)
def test_a_place_for_no_report_is_refused_first(
    call: Call, log: LogBuilder, tmp_path: Path, place: str, message: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    path = tmp_path / place
    for command in (
        ("verify", log.store),
        ("pipeline", "stats", log.store, "--out", tmp_path / "out", "--master", "none"),
    ):
        code, out, err = call(*command, *SIZES, "--report", path)
        assert (code, out) == (2, "")
        assert f"--report {path}: {message}" in err
        assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


def test_in_place_there_is_nothing_to_report(call: Call, log: LogBuilder, tmp_path: Path) -> None:
    code, _, err = call("rebuild", log.store, "--report", tmp_path / "r.html")
    assert code == 2
    assert "--report need --out" in re.sub(r"[│\s]+", " ", err)
    assert not (tmp_path / "r.html").exists()


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        del handle
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files.os, "fsync", fsync)


def test_a_full_disk_keeps_the_old_report(
    call: Call, log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "r.html"
    report.write_text("the old one")
    expected = call("pipeline", "audit", log.store, "--master", "none")
    full_disk(monkeypatch)
    code, out, err = call("pipeline", "audit", log.store, "--master", "none", "--report", report)
    assert code == 7
    assert out == expected[1]
    assert f"{report}: the report was not written: No space left on device" in err
    assert "Traceback" not in err
    assert report.read_text() == "the old one"
    assert not list(tmp_path.glob(".r.html*"))


def test_a_fault_of_the_store_counts_more_than_a_full_disk(
    call: Call, log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(log, log.records[30].physical_offset + 100)
    full_disk(monkeypatch)
    for command in (("verify",), ("pipeline", "audit", "--master", "none")):
        code, _, err = call(*command, log.store, *SIZES, "--report", tmp_path / "r.html")
        assert code == 1
        assert "the report was not written: No space left on device" in err


def test_an_older_report_is_replaced_in_its_place(
    call: Call, log: LogBuilder, tmp_path: Path
) -> None:
    behind, link = tmp_path / "behind.html", tmp_path / "link.html"
    behind.write_text("the old one")
    behind.chmod(0o640)
    link.symlink_to(behind)
    assert call("verify", log.store, *SIZES, "--report", link)[0] == 0
    assert link.is_symlink()
    assert behind.read_text().startswith("<!DOCTYPE html>")
    assert behind.stat().st_mode & 0o777 == 0o640


def test_names_from_the_log_are_text(call: Call, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store", FILE)
    for number in range(40):
        builder.put(f"{TOPIC}\u202e{number % 2}", 0, b"x" * 50)
    builder.write()
    flip(builder, builder.records[20].physical_offset + 100)
    assert call("pipeline", "audit", builder.store, "--master", "none", "--report",
                tmp_path / "r.html")[0] == 1  # fmt: skip
    text = (tmp_path / "r.html").read_text()
    assert "orders&lt;b&gt;&amp;amp;\\u202e0" in text
    assert "<b>" not in text
    assert "\u202e" not in text


def test_every_job_has_a_heading_of_its_own() -> None:
    jobs = ("audit", "compare", "stats", "waiting", "rebuild", "export", "restore")
    assert len({job_report.title_of(job) for job in jobs} | set(jobs)) == 2 * len(jobs)
