"""Tell the service manager how this process is doing: systemd's notify protocol.

    started ──READY=1──▶ running ──WATCHDOG=1, again and again──▶ asked to stop ──STOPPING=1──▶

One datagram each to the socket that NOTIFY_SOCKET names; without it nothing is sent. A
unit of `Type=notify` counts as started only from READY on, so what depends on the node waits until
it serves. With WatchdogSec= the manager restarts a process that falls silent: the sign
of life comes from the event loop, which is what would hang. The variables are taken out of the
environment, so that no other process speaks for this one.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass

from .tasks import cancelled

logger = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Manager:
    """`address` is of a Unix socket; empty: there is no manager. `watchdog_s`: it wants a sign of
    life within so many seconds; 0: it wants none."""

    address: str = ""
    watchdog_s: float = 0.0

    @classmethod
    def named_in(cls, environment: MutableMapping[str, str], pid: int) -> "Manager":
        """Take the variables out of `environment`; the watchdog's may be meant for another pid."""
        address = environment.pop("NOTIFY_SOCKET", "")
        interval = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", str(pid))
        mine = interval.isdecimal() and meant == str(pid)
        return cls(address, int(interval) / 1e6 if mine else 0.0)

    def say(self, text: str) -> None:
        """Send `text`; a manager that is gone must not end a node that works."""
        if not self.address:
            return
        # a name that begins with @ is no file: Linux wants a zero byte in its place
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                # waiting for a manager that does not read would stop the event loop
                line.setblocking(False)
                line.sendto(text.encode(), name)
        except OSError as error:
            logger.warning("the service manager at %s does not hear: %s", self.address, error)

    async def keep_alive(self, pause: Pause) -> None:
        """Half of the interval leaves room for a loop that is busy."""
        while True:
            await pause(self.watchdog_s / 2)
            self.say("WATCHDOG=1")


@contextlib.asynccontextmanager
async def said_ready(
    status: str, manager: Manager | None = None, pause: Pause = asyncio.sleep
) -> AsyncIterator[None]:
    """The process serves while the body runs. `status` is for people: `systemctl status` shows
    it."""
    manager = manager or Manager.named_in(os.environ, os.getpid())
    manager.say(f"READY=1\nSTATUS={status}")
    living = asyncio.create_task(manager.keep_alive(pause)) if manager.watchdog_s else None
    try:
        yield
    finally:
        manager.say("STOPPING=1\nSTATUS=stopping: puts are finished, the store is closed")
        if living is not None:
            await cancelled(living)
