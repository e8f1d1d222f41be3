"""The view on a terminal: looks come in, keys come in, the screen is drawn again after each.

    looks ──after()──▶ Recent ┐
                              ├─screen()─▶ Terminal
    keys ──pressed()─▶ View ──┘

One event loop; a look in progress holds up no key.
"""

import asyncio
import codecs
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.text import Text

from .looks import Looks
from .recent import Recent, after
from .screen import screen
from .terminal import Terminal
from .view import Room, View, decoded, pressed

MOST_BYTES = 4_096
"""Of one read of keys."""


class LiveView:
    """See the module. `interval_s` is between the beginnings of two looks."""

    def __init__(self, looks: Looks, view: View, interval_s: float, terminal: Terminal) -> None:
        self._looks = looks
        self._interval_s = interval_s
        self._terminal = terminal
        self._recent = Recent()
        self._view = view
        self._room = Room()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._changed, self._ended = asyncio.Event(), asyncio.Event()
        self._signal = 0

    async def run(self) -> int:
        """Until `q` is pressed or the program is told to end; the signal that did it, or 0. Raises
        what the first look raises."""
        self._terminal.show(Text("asking …"))
        steps = (self._look(), self._draw(), self._ended.wait())
        tasks = [asyncio.create_task(each) for each in steps]
        try:
            with self._signals(), self._keys(), _no_log():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            for each in tasks:
                each.cancel()
            self._looks.close()
        return self._signal

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            look = await (self._looks.next() if self._recent.count else self._looks.first())
            self._recent = after(self._recent, look)
            self._changed.set()
            await asyncio.sleep(max(0.0, began + self._interval_s - loop.time()))

    async def _draw(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._recent.count:
                shown = screen(self._recent, self._view, *self._terminal.size)
                self._room = shown.room
                try:
                    self._terminal.show(shown)
                except OSError:  # the terminal is gone
                    self._end(signal.SIGHUP)
                    return

    @contextmanager
    def _keys(self) -> Iterator[None]:
        descriptor = self._terminal.keys
        if descriptor is None:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._read_keys, descriptor)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    def _read_keys(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, MOST_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._end(signal.SIGHUP)
            return
        for key in decoded(self._text.decode(data)):
            self._view = pressed(self._view, key, self._room)
        if self._view.ended:
            self._ended.set()
        self._changed.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C is left to asyncio, which cancels us."""
        loop = asyncio.get_running_loop()
        actions: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGWINCH: self._changed.set,
            signal.SIGTSTP: self._stop,
            signal.SIGTERM: partial(self._end, signal.SIGTERM),
            signal.SIGHUP: partial(self._end, signal.SIGHUP),
        }
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number in actions:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """As Ctrl-Z does, until the shell lets the program continue."""
        loop = asyncio.get_running_loop()
        with self._terminal.given_back():
            loop.remove_signal_handler(signal.SIGTSTP)
            signal.raise_signal(signal.SIGTSTP)
            loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._changed.set()

    def _end(self, number: signal.Signals) -> None:
        self._signal = number
        self._ended.set()


@contextmanager
def _no_log() -> Iterator[None]:
    """Warnings of the client would be written over the screen, which tells the same."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
