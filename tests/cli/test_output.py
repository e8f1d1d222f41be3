"""What a table looks like where it does not fit, and who else may write a cluster's files."""

from pathlib import Path

import pytest
from rich.console import Console

from tandemlog_server.cli.local.local_cluster import locked
from tandemlog_server.cli.messages.inputs import lines_of
from tandemlog_server.cli.output.tables import fits, table_of, write_table
from tandemlog_server.cli.shared import exit_codes
from tandemlog_server.cli.shared.failures import CommandError, exit_code_of
from tandemlog_server.storage.errors import StoreLockedError

ROWS = [
    {"node": "n0", "endpoint": "127.0.0.1:10911", "wrote_offset": 17, "lag": None},
    {"node": "n1", "endpoint": "127.0.0.1:10912", "wrote_offset": 5, "lag": 12},
]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 30 columns."""
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("narrow")
def test_a_table_that_does_not_fit_has_a_line_for_each_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_table(ROWS, titles={"wrote_offset": "wrote"})
    lines = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert lines == [
        "node      n0",
        "endpoint  127.0.0.1:10911",
        "wrote     17",
        "",
        "node      n1",
        "endpoint  127.0.0.1:10912",
        "wrote     5",
        "lag       12",
    ]


def test_numbers_stand_right_though_one_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(ROWS, ["node", "lag"])
    assert capsys.readouterr().out.splitlines()[1:] == ["n0       ", "n1     12"]
    table = table_of(ROWS, ["node", "endpoint"])
    assert [fits(table, Console(width=width)) for width in (20, 21)] == [False, True]


async def test_a_file_that_cannot_be_read_is_wrong_use(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "missing", "No such file"), (tmp_path, "is a folder")):
        with pytest.raises(CommandError, match=words) as refused:
            [line async for line in lines_of(path)]
        assert refused.value.exit_code == exit_codes.USAGE
        assert str(path) in str(refused.value)


def test_a_cluster_that_runs_keeps_its_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "cluster"):
        with pytest.raises(StoreLockedError, match="another `tandemlog up`") as refused:
            locked(tmp_path / "cluster").__enter__()
        assert exit_code_of(refused.value) == exit_codes.STORE
    with locked(tmp_path / "cluster"):
        pass
