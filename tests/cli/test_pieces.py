"""The parts of the command line: times, rows, lines, generated bodies, errors in one line."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tandemlog import errors as client_errors
from tandemlog_server.cli import app
from tandemlog_server.cli.messages.inputs import lines_of
from tandemlog_server.cli.messages.reading import EveryQueue
from tandemlog_server.cli.messages.sending import generated_bodies
from tandemlog_server.cli.output.tables import (
    MAX_CELL,
    StreamedTable,
    cell_text,
    write_lines,
    write_table,
)
from tandemlog_server.cli.shared import exit_codes, failures
from tandemlog_server.cli.shared.failures import CommandError, exit_code_of, one_line_errors
from tandemlog_server.cli.shared.options import connection_options
from tandemlog_server.cli.shared.times import parse_time_ms
from tandemlog_server.ha import errors as ha_errors
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreLockedError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1795245296417", 1795245296417),
        ("2026-11-21T07:14:56.417+00:00", 1795245296417),
        ("2026-11-21T08:14:56.417+01:00", 1795245296417),
        ("2026-11-21T07:14:56Z", 1795245296000),
        ("now", 5),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert parse_time_ms(text, now_ms=5) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-5",
        "2026-13-01",
        "1.5",
        str(2**63),
        "9" * 20,
        "9" * 5000,
        "-" + "9" * 5000,
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_time_ms(text, now_ms=5)


@pytest.mark.parametrize(
    "arguments",
    [
        ("offsets", "t", "--at", "9" * 20),
        ("pull", "t", "--offset", "9" * 20),
        ("query", "t", "--key", "k", "--begin", "9" * 20),
        ("query", "t", "--key", "k", "--end", "9" * 20),
        ("list", "--timeout", "1e300"),
        ("list", "--timeout", "inf"),
        ("list", "--timeout", "nan"),
        ("put", "t", "--generate", "1", "--timeout", "nan"),
        ("pull", "t", "--timeout", "86401"),
    ],
)
def test_numbers_beyond_what_can_be_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.argv", ["tandemlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == exit_codes.USAGE
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert arguments[-1] in err or "--timeout" in err


def test_a_day_is_the_longest_time_to_try() -> None:
    assert connection_options(86_400).request_timeout_ms == 86_400_000


def test_lines_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_lines([{"a": 1, "b": "ü\n"}, {"a": None}]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1, "b": "ü\n"}, {"a": None}]


def test_a_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    write_table([{"name": "x" * 50, "n": each} for each in range(3)] * 100, ["name", "n"])
    out = capsys.readouterr().out
    assert out.count("x" * 50) == 300
    assert out.splitlines()[0].split() == ["name", "n"]


def test_an_empty_table_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    write_table([], ["topic", "queue_id"])
    assert capsys.readouterr().out.split() == ["topic", "queue_id"]


def test_a_streamed_table_has_one_head(capsys: pytest.CaptureFixture[str]) -> None:
    table = StreamedTable({"a": 4, "b": 0})
    table.write([{"a": 1, "b": "x"}])
    table.write([{"a": 2, "b": "y"}])
    assert capsys.readouterr().out == "a     b\n1     x\n2     y\n"


def test_cells() -> None:
    assert cell_text(None) == ""
    assert cell_text(True) == "yes"
    assert cell_text(1.5) == "1.5"
    assert cell_text("a\nb") == "a\\nb"
    assert cell_text("\x1b[31m\r\x9b\u2028\0标签") == "\\x1b[31m\\r\\x9b\\u2028\\x00标签"
    assert cell_text("a\u202eb\u200bc") == "a\\u202eb\\u200bc"
    assert cell_text({"k": "v"}) == "k=v"
    assert len(cell_text("x" * 500)) == MAX_CELL


def test_generated_bodies_begin_with_their_number() -> None:
    bodies = generated_bodies(99, 3, 20)
    assert [bytes(row) for row in bodies] == [
        b"000000000099mnopqrst",
        b"000000000100mnopqrst",
        b"000000000101mnopqrst",
    ]
    assert bytes(generated_bodies(7, 1, 3)[0]) == b"007"
    assert generated_bodies(0, 2, 0).shape == (2, 0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


async def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\ntwo\r\nlast")
    assert [line async for line in lines_of(path)] == [b"one", b"", b"two", b"last"]


async def test_lines_of_a_pipe_come_as_they_are_written(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.FileIO(pipe[0], closefd=False))
    lines = lines_of(None)
    os.write(pipe[1], b"first\nsec")
    assert await anext(lines) == b"first"
    os.write(pipe[1], b"ond\n")
    os.close(pipe[1])
    assert [line async for line in lines] == [b"second"]


def test_every_queue_has_the_offset() -> None:
    offsets = EveryQueue(7)
    assert offsets["any", 3] == 7
    assert ("any", 3) in offsets


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (client_errors.NoMasterError("none"), exit_codes.UNREACHABLE),
        (client_errors.UnknownTopicError("t"), exit_codes.NOT_FOUND),
        (client_errors.NotMasterError("slave"), exit_codes.REFUSED),
        (client_errors.OutcomeUnknownError("?"), exit_codes.UNKNOWN_OUTCOME),
        (client_errors.MessageTooLargeError("big"), exit_codes.USAGE),
        (StoreLockedError("locked"), exit_codes.STORE),
    ],
)
def test_exit_codes(problem: Exception, code: int) -> None:
    assert exit_code_of(problem) == code
    assert code in exit_codes.MEANING


@pytest.mark.parametrize(
    ("problem", "said", "code"),
    [
        (CommandError("no such thing", 4), "tandemlog: no such thing\n", 4),
        (StoreLockedError("in use"), "tandemlog: in use\n", exit_codes.STORE),
        (
            FileNotFoundError(2, "No such file or directory", "/x"),
            "tandemlog: /x: No such file or directory\n",
            exit_codes.STORE,
        ),
        (KeyboardInterrupt(), "tandemlog: interrupted\n", exit_codes.INTERRUPTED),
    ],
)
def test_expected_problems_are_one_line(
    capsys: pytest.CaptureFixture[str], problem: BaseException, said: str, code: int
) -> None:
    with pytest.raises(typer.Exit) as raised, one_line_errors():
        raise problem
    assert raised.value.exit_code == code
    assert capsys.readouterr().err == said


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors():
        raise ZeroDivisionError


def test_a_start_on_the_store_of_another_node_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = StateFile(tmp_path, RealFileSystem())
    files.load(HaConfig("cluster", "a"))
    with pytest.raises(typer.Exit) as ended, one_line_errors():
        files.load(HaConfig("cluster", "b"))
    assert ended.value.exit_code == exit_codes.STORE
    assert "belongs to node 'a', but the configuration says 'b'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind", [each for each in vars(ha_errors).values() if isinstance(each, type)]
)
def test_every_error_of_the_replication_has_an_exit_code(kind: type[Exception]) -> None:
    if issubclass(kind, ha_errors.HaError):
        assert failures._is_expected(kind.__new__(kind))
