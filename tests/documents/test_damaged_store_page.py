"""docs/damaged-store.md is true: its commands, in order, on a store that RocketMQ 5.5.0 wrote.

The README's section on such stores is true as well.

`<!-- test: damage … -->` damages the copy, `<!-- test: restore -->` makes the copy again. The
options for the sizes of the small store are added to each command.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from documents.pages import DOCS, README, Step, assert_shows, steps
from helpers import golden
from tandemlog_server.cli import app

pytestmark = pytest.mark.golden

PAGE = DOCS / "damaged-store.md"
STORE = next(each for each in golden.stores() if each.label == "rocketmq-5.5.0-clean")
ORIGINAL = "/data/store"
# A record in the middle of the second file, and the last one of the log.
MIDDLE, MIDDLE_FILE = 110_370, 65_536
LAST, LAST_FILE = 308_076, 262_144
BODY = 88


Run = Callable[[list[str]], tuple[int, str]]


class Walk:
    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run
        copy = STORE.copy(folder / "source")
        self.original = copy.store
        self.copy = folder / "copy"
        sizes = copy.sizes
        self.sizes = [f"--index-slots={sizes['index_slots']}"]
        self.sizes += [f"--index-entries={sizes['index_entries']}"]

    def step(self, step: Step) -> None:
        if step.directive:
            what, _, where = step.directive.partition(" ")
            getattr(self, f"_{what}")(where)
            return
        name, *arguments = shlex.split(step.command, comments=True)
        arguments = [str(self.original) if each == ORIGINAL else each for each in arguments]
        if name == "cp":
            subprocess.run([name, *arguments], cwd=self.folder, check=True)
            return
        assert name == "tandemlog"
        code, printed = self.run([*arguments, *self.sizes])
        printed = printed.replace(str(self.original), ORIGINAL)
        assert code == step.exit_code, f"{step.command}\n{printed}"
        assert_shows(step, printed)

    def _restore(self, _: str) -> None:
        shutil.rmtree(self.copy)
        shutil.copytree(self.original, self.copy)

    def _damage(self, what: str) -> None:
        log = self.copy / "commitlog"
        if what == "queue":
            self._write(self.copy / f"consumequeue/Orders/1/{0:020}", 40, b"\x01" * 10)
            (self.copy / "index" / "20261121093501787").unlink()
        elif what == "tail":
            self._write(log / f"{LAST_FILE:020}", LAST - LAST_FILE + 150, bytes(164))
            (self.copy / "abort").touch()
        elif what == "body":
            path, at = log / f"{MIDDLE_FILE:020}", MIDDLE - MIDDLE_FILE + BODY + 20
            self._write(path, at, bytes([path.read_bytes()[at] ^ 4]))
        else:
            raise AssertionError(f"there is no damage {what}")

    @staticmethod
    def _write(path: Path, at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The program in this process: its exit code, and what it printed."""

    def call(arguments: list[str]) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["tandemlog", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, "".join(capfd.readouterr())

    return call


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    walk = Walk(tmp_path, run)
    found = steps(PAGE)
    assert sum(bool(step.command) for step in found) >= 10
    for step in found:
        walk.step(step)


def test_the_section_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    walk = Walk(tmp_path, run)
    shutil.copytree(walk.original, "STORE")
    shutil.copytree(walk.original, "OTHER")
    section = README.read_text(encoding="utf-8").split("\n## Have a RocketMQ store?\n", 1)[1]
    commands = re.findall(r"^tandemlog .*$", section.split("\n## ", 1)[0], re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        walk.step(Step(command))
