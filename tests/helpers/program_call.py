"""The program, called in this process as a shell calls it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tandemlog_server.cli import app

Call = Callable[..., tuple[int, str, str]]


def call_program(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    monkeypatch.setattr("sys.argv", ["tandemlog", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        app.main()
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err
