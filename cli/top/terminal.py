"""The terminal while the view has it: another screen, keys one by one, no cursor.

    with Terminal(console, keys) as terminal:
        terminal.show(screen)

What was there before is there again afterwards, whatever happens in between; only SIGKILL leaves it
as it is (`reset` helps then). While the program is stopped by Ctrl-Z the shell has its own screen.
"""

import contextlib
import termios
import tty
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live


class Terminal:
    """See the module. `keys` is the descriptor from which they are read, None where there are
    none."""

    def __init__(self, console: Console, keys: int | None) -> None:
        self.keys = keys
        self._console = console
        self._restoring = contextlib.ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_back()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, now."""
        return self._console.width, self._console.height

    def show(self, renderable: RenderableType) -> None:
        """Draws it over what is shown."""
        if self._live is not None:
            self._live.update(renderable, refresh=True)

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Meanwhile it is as it was before."""
        self._give_back()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        with contextlib.ExitStack() as stack:
            if self.keys is not None:
                stack.callback(_restore, self.keys, termios.tcgetattr(self.keys))
                tty.setcbreak(self.keys)
            live = Live(
                console=self._console,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            stack.callback(_stop, live)
            live.start()
            self._live = live
            self._restoring = stack.pop_all()

    def _give_back(self) -> None:
        self._live = None
        self._restoring.close()


def _stop(live: Live) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        live.stop()


def _restore(descriptor: int, attributes: list[Any]) -> None:
    with contextlib.suppress(termios.error):
        termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
