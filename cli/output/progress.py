"""Progress of long work, on stderr and only if that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from .tables import error_console


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar to be told (bytes done, bytes in all)."""
    console = error_console()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(done, total))

        yield show
