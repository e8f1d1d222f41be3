"""A Spark driver in a process group of its own, so that all of it can be killed at once."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

QUICK_PLANNERS = str(ROOT / "tests" / "fakes" / "site")
"""On PYTHONPATH of a driver; see sitecustomize.py there."""


class SparkProgram:
    """`python -m MODULE ARGUMENTS`; what it prints is in `answer`, what it complains of in `log`.

    They are two files since Spark's workers complain at any time: one that is ended while the
    driver stops still writes half a traceback behind the driver's last line.
    """

    def __init__(
        self, module: str, arguments: list[str], log: Path, folder: Path | None = None
    ) -> None:
        """`folder` is where modules are looked for before ours."""
        self.log = log
        self.answer = log.with_suffix(".out")
        folders = [str(folder)] if folder is not None else []
        path = os.pathsep.join((*folders, str(ROOT), str(ROOT / "tests"), QUICK_PLANNERS))
        with self.answer.open("ab") as output, log.open("ab") as complaints:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )

    def wait_until(self, what: str, true: Callable[[], bool], timeout_s: float = 400) -> None:
        """Poll until `true()`, as long as the program runs; raises AssertionError with its log."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"waited for: {what}\n{self.tail()}")
            time.sleep(0.05)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM. Python workers have a group of their own: they find
        out by themselves that nobody is there any more."""
        self._signal(signal.SIGKILL)
        self.process.wait(20)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def finish(self, timeout_s: float = 540) -> str:
        """Wait for the end, return what it printed; raises AssertionError with the log unless it
        was a good one."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        if code != 0:
            raise AssertionError(f"the program ended with {code}\n{self.tail()}")
        return self.answer.read_text()

    def tail(self, size: int = 6_000) -> str:
        return self.log.read_text(errors="replace")[-size:]
