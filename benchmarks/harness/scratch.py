"""A folder for the gigabytes of one benchmark, removed however the benchmark ends.

A signal that ends a process runs no `finally`: SIGTERM becomes SystemExit here, as Ctrl-C is
KeyboardInterrupt, so what the benchmark has started is stopped and the folder removed. Only the
first signal counts: a second one would interrupt the cleaning.
"""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """The folder of benchmark `name`; for the main thread. Raises SystemExit with the exit code of
    a shell where a signal ends it; one that was ignored before, as under nohup, stays so."""
    heeded = [each for each in ENDINGS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, _end) for each in heeded}
    try:
        with tempfile.TemporaryDirectory(prefix=f"tandemlog-bench-{name}-") as folder:
            yield Path(folder)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)
