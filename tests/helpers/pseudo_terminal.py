"""A program in a terminal of its own: keys go in, the screen is read.

    with PseudoTerminal(["top", "--interval", "0.2"], columns=80, lines=24) as terminal:
        terminal.wait_shown("n0 as the master", lambda text: "n0 is the master" in text)
        terminal.press("q")

The program is the foreground of a session that the terminal controls, so Ctrl-C and a change of its
size reach it as signals. The screen is what was drawn since the cursor was last at the top left:
the programs that are tried here draw all of it each time.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from helpers.forked import PROGRAM, ROOT

HOME = "\x1b[H"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BEGIN = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
MODES = slice(0, 4)
"""Of termios attributes: what cbreak changes."""


class PseudoTerminal:
    """See the module. `text` is all that the program has written."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        program: Sequence[str] = PROGRAM,
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self.text = ""
        self._ours, theirs = pty.openpty()
        self.resize(columns, lines)
        self.before = self.modes
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *program, *arguments],
            cwd=ROOT,
            env=kept | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(60)
        self.vanish()

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def vanish(self) -> None:
        """As the window of a terminal that is closed."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    @property
    def screen(self) -> str:
        """The newest one that was drawn to its end."""
        drawn = self.text.split(HOME)[1:-1]
        return _CONTROL.sub("", drawn[-1]).replace("\r", "") if drawn else ""

    @property
    def is_restored(self) -> bool:
        """Whether the modes are those from before, the first screen is back, and the cursor."""
        last = {name: self.text.rfind(name) for name in ("\x1b[?1049h", "\x1b[?1049l")}
        cursor = self.text.rfind("\x1b[?25h") > self.text.rfind("\x1b[?25l")
        other = last["\x1b[?1049l"] > last["\x1b[?1049h"] >= 0
        return self.modes == self.before and other and cursor

    def wait_shown(self, what: str, is_shown: Callable[[str], bool], timeout_s: float = 30) -> str:
        """The screen once `is_shown`; only screens that are drawn from now on count."""
        deadline, seen = time.monotonic() + timeout_s, self.text.count(HOME)
        while time.monotonic() < deadline:
            if not self._read(0.1) and self.process.poll() is not None:
                raise AssertionError(f"it has ended before it showed {what}:\n{self.text[-3000:]}")
            if self.text.count(HOME) > seen + 1 and is_shown(self.screen):
                return self.screen
        raise AssertionError(f"waited {timeout_s} s for {what}:\n{self.screen}")

    def wait_said(self, what: str, timeout_s: float = 30) -> None:
        """Until the last that was written ends with `what`, on any screen."""
        deadline = time.monotonic() + timeout_s
        while not self.text.rstrip().endswith(what):
            assert time.monotonic() < deadline, f"waited for {what!r}: {self.text[-500:]!r}"
            self._read(0.1)

    def wait_end(self, timeout_s: float = 30) -> int:
        """The exit code."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.wait(0)

    @property
    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._ours)[MODES]

    def _read(self, timeout_s: float) -> bool:
        """What has come within this time; False for nothing."""
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return False
        data = b""
        with contextlib.suppress(OSError):  # the program has closed the other side
            data = os.read(self._ours, 65_536)
        self.text += data.decode(errors="replace")
        return bool(data)
