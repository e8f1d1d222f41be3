"""`tandemlog pipeline …` as a user calls it, without Spark (`--master none`)."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fakes.log_builder import LogBuilder, flip, varied
from tandemlog_server.cli.commands import pipeline as commands

SIZES = ["--index-slots", "20", "--index-entries", "100", "--queue-file-size", "200"]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    builder = varied(LogBuilder(tmp_path / "store", 16384))
    builder.write()
    return builder


def run(*arguments: str | Path) -> Result:
    words = [str(each) for each in arguments]
    return CliRunner().invoke(commands.app, [*words, "--master", "none"])


def test_every_command_takes_the_sizes_and_answers_in_json(log: LogBuilder, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for arguments in (
        ("rebuild", log.store, "--out", tmp_path / "out"),
        ("audit", log.store),
        ("export", log.store, "--out", archive),
        ("restore", archive, "--out", tmp_path / "again"),
        ("compare", log.store, tmp_path / "again"),
        ("stats", log.store, "--out", tmp_path / "stats"),
    ):
        result = run(*arguments, *SIZES, "--format", "json")
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert (document["job"], document["holds"]) == (arguments[0], True)
        if arguments[0] != "compare":
            assert document["records"] == len(log.records)
            assert sum(document["topics"].values()) <= len(log.records)


def test_a_table_names_file_offset_and_message(log: LogBuilder) -> None:
    bad = next(each for each in log.records[30:] if len(each.body) > 20)
    flip(log, bad.physical_offset + 100)
    result = run("audit", log.store)
    assert result.exit_code == 1
    assert f"{log.path(bad.physical_offset)}: offset {bad.physical_offset}" in result.stdout
    assert f"message {bad.queue_offset} of {bad.topic}/{bad.queue_id}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["audit", "STORE/none"], 2, "is not a folder"),
        (["restore", "STORE", "--out", "X"], 2, "no manifest.json"),
        (["compare", "STORE", "node:127.0.0.1:1"], 3, "unavailable"),
        (["rebuild", "STORE", "--out", "STORE/commitlog/../x", "--queue-file-size", "30"], 7, "20"),
        (["export", "STORE", "--out", "X", "--compression", "rar"], 2, "snappy, zstd"),
        (["demo", "--dir", "X"], 2, "does not run without"),
    ],
)
def test_what_goes_wrong_is_one_line(
    log: LogBuilder, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    words = [
        each.replace("STORE", str(log.store)).replace("X", str(tmp_path / "x"))
        for each in arguments
    ]
    result = run(*words)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_demo_that_is_refused_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("demo").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_without_spark_it_says_what_to_install(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr(importlib, "import_module", missing)
    result = run("audit", log.store)
    assert result.exit_code == 2
    assert "pip install 'tandemlog[spark]'" in result.stderr


WITHOUT_SPARK = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from tandemlog_server.cli.app import main
main()
"""


def without_spark(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT_SPARK, "pipeline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_without_a_master_no_spark_is_needed(log: LogBuilder, tmp_path: Path) -> None:
    out, sizes = tmp_path / "out", ("--index-slots", 20, "--index-entries", 100)
    for arguments in (
        ("rebuild", log.store, "--out", out / "rebuilt", *sizes),
        ("audit", log.store),
        ("export", log.store, "--out", out / "export"),
        ("restore", out / "export", "--out", out / "restored", *sizes),
        ("compare", log.store, out / "restored"),
        ("stats", log.store, "--out", out / "stats"),
    ):
        done = without_spark(*arguments, "--master", "none", "--format", "json")
        assert done.returncode == 0, (arguments, done.stderr)
        assert json.loads(done.stdout)["job"] == arguments[0]
    done = without_spark("audit", log.store, "--master", "local[1]")
    assert done.returncode == 2
    assert "pyspark is not installed" in done.stderr
