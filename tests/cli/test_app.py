"""The program as a whole: every command has help, and a wrong option is one clear line."""

import gc
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from tandemlog_server.cli import app
from tandemlog_server.cli.cluster.verdict import Level
from tandemlog_server.cli.shared.exit_codes import MEANING, USAGE, epilog


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["tandemlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


SAME_CODES = [(name,) for name in app.COMMANDS if name != "check"]


@pytest.mark.parametrize("command", [*SAME_CODES, ("topic", "create")])
def test_the_help_of_a_command_says_in_one_line_where_the_exit_codes_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """The table has nine lines, which are the same for every command."""
    code, out, _ = run(monkeypatch, capsys, *command, "--help")
    assert code == 0
    assert out.rstrip().splitlines()[-1].strip() == epilog()
    assert "Ctrl-C" not in out.rpartition("\n\n")[2]


def test_the_help_of_the_program_tells_the_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    text = " ".join(out.split())
    assert "Exit codes:" in text
    assert all(f"{each} {meaning}" in text for each, meaning in MEANING.items())


def test_check_has_the_exit_codes_of_a_monitoring_plugin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "check", "--help")
    assert code == 0
    text = " ".join(out.split())
    assert all(f"{level.value} {level.name}" in text for level in Level)


@pytest.mark.parametrize("arguments", [("--version",), ("--version", "list")])
def test_the_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, out, err) == (0, "tandemlog 0.2.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dmp",), "no such command 'dmp'; there are: up, node"),
        (("dump", "--what", "x", "."), "'--what'"),
        (("dump", "/nonexistent"), "STORE /nonexistent is not a folder"),
        (("dump",), "Missing argument 'STORE'"),
        (("list", "--format", "xml"), "'--format'"),
        (("list", "--endpoint", "host:port"), "endpoint 'host:port'"),
        (
            ("pull", "t", "--offset", "noon"),
            "not a time: 'noon'; write earliest, latest, a queue offset, ISO 8601",
        ),
        (("pull", "t", "--max", "0"), "'--max'"),
        (("pull", "t", "--from", "nowhere"), "'--from'"),
        (("query", "t"), "give exactly one of --key, --tag and --id"),
        (("query", "--key", "k"), "--key and --tag need a TOPIC"),
        (("query", "t", "--key", "k", "--max", "4294967296"), "'--max'"),
        (("put", "t", "--generate", "1", "--size", "99999999999"), "'--size'"),
        (("put", "t", "--generate", "1", "--queue", "65536"), "'--queue'"),
        (("offsets", "\udcff"), "not valid UTF-8: '\\udcff'"),
        (("query", "t", "--key", "k\udcff"), "not valid UTF-8: 'k\\udcff'"),
        (("put", "t", "--generate", "1", "--key", "a", "--key", "k\udcff"), "'--key': not valid"),
        (("topic", "create", "\udcff"), "not valid UTF-8: '\\udcff'"),
        (("put", "t", "--property", "novalue"), "--property must be NAME=VALUE"),
        (("put", "t", "file", "--generate", "1"), "not both"),
        (("offsets", "t", "--at", "x"), "not a time: 'x'"),
        (("offsets", "t", "--boundary", "middle"), "'--boundary'"),
        (("topic", "create", "t", "--perm", "x"), "--perm must be rw, r or w"),
        (("up", "--slaves", "-1"), "'--slaves'"),
        (("up", "--flush", "never"), "--flush must be one of async, sync"),
        (("node", "--config", "/nonexistent"), "cannot read /nonexistent"),
        (("pipeline", "audit", "/nonexistent"), "/nonexistent is not a folder"),
    ],
)
def test_what_is_wrong_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == USAGE
    assert out == ""
    assert len(err.splitlines()) == 1
    assert said in err
    assert err.startswith("tandemlog: ")


def test_a_node_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (("list",), ("topic", "list"), ("put", "t", "--generate", "1")):
        code, _, err = run(
            monkeypatch, capsys, *command, "--endpoint", "127.0.0.1:1", "--timeout", "0.2"
        )
        assert code == 3
        assert len(err.splitlines()) == 1
        assert "127.0.0.1:1" in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", ["dump STORE --format jsonl", "verify STORE", "recover STORE"]
)
def test_a_closed_stream_is_no_fault_and_its_number_goes_to_no_file_of_the_store(
    tmp_path: Path, arguments: str, closed: str
) -> None:
    (tmp_path / "commitlog").mkdir()
    command = f"{sys.executable} -m tandemlog {arguments.replace('STORE', str(tmp_path))} {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


def test_a_path_that_is_no_utf8_is_shown_escaped(tmp_path: Path) -> None:
    store = tmp_path / "caf\udce9"
    (store / "commitlog").mkdir(parents=True)
    command = [sys.executable, "-m", "tandemlog", "recover", str(store), "--dry-run"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "caf\\udce9: nothing was changed" in ended.stdout


@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_rests_while_a_command_is_loaded(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    meanwhile: list[bool] = []

    def load(_name: str) -> object:
        meanwhile.append(gc.isenabled())
        if fails:
            raise ModuleNotFoundError("numpy")
        return types.SimpleNamespace(app=typer.Typer(name="up"))

    monkeypatch.setattr("tandemlog_server.cli.app.importlib.import_module", load)
    command: Any = typer.main.get_command(app.app)
    with suppress(ModuleNotFoundError, RuntimeError):
        command.get_command(None, "up")
    assert (meanwhile, gc.isenabled()) == ([False], True)
