"""`scan`: the messages of a log without a node, of a folder and of an archive alike."""

import base64
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fakes.built_archives import archive_log
from fakes.log_builder import LogBuilder, flip, varied
from helpers.program_call import Call, call_program
from tandemlog.archive.folder_store import FolderStore
from tandemlog_server.storage.tools.dump import message_row


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        return call_program(monkeypatch, capfd, *arguments)

    return run


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    made = varied(LogBuilder(tmp_path / "store", 16384), 40)
    made.write()
    archive_log(FolderStore(tmp_path / "archive"), made, 3000)
    return made


def test_every_message_as_dump_has_it(call: Call, builder: LogBuilder, tmp_path: Path) -> None:
    for source in (builder.store, tmp_path / "archive", (tmp_path / "archive").as_uri()):
        code, out, err = call("scan", source, "--format", "jsonl")
        assert (code, err) == (0, "")
        assert [json.loads(line) for line in out.splitlines()] == [
            message_row(each) for each in builder.records
        ]


def test_topics_times_and_offsets(call: Call, builder: LogBuilder, tmp_path: Path) -> None:
    first, last = builder.records[10], builder.records[30]
    wanted = [
        each.physical_offset for each in builder.records[10:31] if each.topic in ("Orders", "six")
    ]
    since = datetime.fromtimestamp(first.store_timestamp / 1000, UTC).isoformat()
    places = ("--from-offset", str(first.physical_offset), "--to-offset")
    for chosen in (
        ("--since", since, "--until", str(last.store_timestamp)),
        (*places, str(last.physical_offset + 1)),
    ):
        for source in (builder.store, tmp_path / "archive"):
            code, out, _ = call(
                "scan", source, "--topic", "Orders", "--topic", "six", *chosen, "-f", "jsonl"
            )
            assert code == 0
            assert [json.loads(line)["physical_offset"] for line in out.splitlines()] == wanted


def test_a_part_and_its_form(call: Call, builder: LogBuilder, tmp_path: Path) -> None:
    code, out, _ = call(
        "scan", tmp_path / "archive", "--max", "3", "-f", r"%t %o\n", "--readers", "1"
    )
    assert code == 0
    assert out == "".join(f"{each.topic} {each.queue_offset}\n" for each in builder.records[:3])
    code, out, _ = call(
        "scan", tmp_path / "archive", "-n", "2", "--topic", "Orders", "--format", "raw"
    )
    bodies = [each.body for each in builder.records if each.topic == "Orders"]
    assert out.encode() == b"".join(bodies[:2])


def test_damage_ends_it_unless_it_is_skipped(call: Call, builder: LogBuilder) -> None:
    record = builder.records[12]
    flip(builder, record.physical_offset + record.size - len(b"TagA") - 40)
    flip(builder, record.physical_offset + 10)
    code, _, err = call("scan", builder.store)
    assert code == 7
    assert f"offset {record.physical_offset}: " in err
    code, out, err = call("scan", builder.store, "--on-corruption", "skip", "-f", "jsonl")
    assert code == 1
    assert len(out.splitlines()) == len(builder.records) - 1
    assert f"offset {record.physical_offset}: " in err
    assert "1 damaged place skipped" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--to-offset", "1", "--from-offset", "2"), 2, "below --from-offset"),
        (("--since", "2026-05-02", "--until", "2026-05-01"), 2, "before --since"),
        (("--from-offset", "999999999"), 2, "the log ends at"),
        (("--format", "nothing"), 2, "--format"),
    ],
)
def test_what_cannot_be_asked(
    call: Call, builder: LogBuilder, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ended, out, err = call("scan", builder.store, *arguments)
    assert (ended, out) == (code, "")
    assert words in err


def test_a_damaged_or_empty_archive(call: Call, builder: LogBuilder, tmp_path: Path) -> None:
    code, _, err = call("scan", "memory://nothing-there")
    assert code == 2
    assert "memory://nothing-there has no manifest" in err
    folder = tmp_path / "archive" / "log"
    damaged = sorted(folder.iterdir())[1]
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    code, _, err = call("scan", tmp_path / "archive")
    assert code == 7
    assert damaged.name in err
    assert "backup verify" in err


def test_bodies_are_decompressed(call: Call, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store", 16384)
    builder.put(body=zlib.compress(b"text " * 50), sys_flag=1)
    builder.write()
    code, out, _ = call("scan", builder.store, "-f", "jsonl")
    assert code == 0
    assert base64.b64decode(json.loads(out)["body"]) == b"text " * 50


def test_verify_reads_and_compares_an_archive(
    call: Call, builder: LogBuilder, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    code, out, err = call("verify", archive)
    assert (code, err) == (0, "")
    assert "everything holds" in out
    code, out, err = call("verify", builder.store / "commitlog", "--against", archive)
    assert (code, err) == (0, "")
    flip(builder, builder.records[7].physical_offset + 50)
    code, out, err = call("verify", builder.store / "commitlog", "--against", archive)
    assert code == 1
    assert f"offset {builder.records[7].physical_offset}: " in err
