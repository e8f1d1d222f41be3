"""Progress of long work, on stderr and only if that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from .tables import error_console


def progress_bar(*columns: ProgressColumn) -> Progress:
    """What is done, a bar, `columns`, and for how long; it vanishes at the end."""
    console = error_console()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar; call the result with (bytes done, bytes in all)."""
    with progress_bar(DownloadColumn(binary_units=True), TransferSpeedColumn()) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(done, total))

        yield show
