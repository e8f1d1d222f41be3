"""Large writes to a socket that blocks, by a thread of its own.

    loop     write ─▶ queue ─▶ thread: sendall, one call without Python's lock ─▶ done ─▶ loop

The thread is made at the first write. It is not taken from a thread pool: a pool may be full of
work that waits for these very bytes, and is gone when a program that ends still sends what it has.
Then the loop writes by itself. A socket is never closed while the thread may be using it: its
number could belong to another file a moment later.
"""

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import Sequence

from ..transport.sockets import behind


class SocketWriter:
    """See the module. Belongs to the loop; `sock` blocks, and is closed by `close`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._works: queue.SimpleQueue[Sequence[memoryview]] | None = None
        self._written: asyncio.Future[None] | None = None
        self._closed = False

    async def write(self, parts: Sequence[memoryview]) -> None:
        """All of `parts`. Raises OSError."""
        if self._works is None and not self._begun():
            await self._write_in_loop(parts)
            return
        assert self._works is not None
        written = self._written = self._loop.create_future()
        self._works.put(parts)
        await asyncio.shield(written)

    def close(self) -> None:
        """The connection was interrupted before: a write ends soon."""
        self._closed = True
        if self._works is not None:
            self._works.put(())
        if self._written is None:
            self._sock.close()

    def _begun(self) -> bool:
        """Whether there is a thread: a program that ends gets none any more."""
        works: queue.SimpleQueue[Sequence[memoryview]] = queue.SimpleQueue()
        thread = threading.Thread(
            target=self._run, args=(works,), name="tandemlog-write", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            return False
        self._works = works
        return True

    def _run(self, works: "queue.SimpleQueue[Sequence[memoryview]]") -> None:
        while parts := works.get():
            problem: OSError | None = None
            try:
                for part in parts:
                    self._sock.sendall(part)
            except OSError as error:
                problem = error
            del parts
            try:
                self._loop.call_soon_threadsafe(self._done, problem)
            except RuntimeError:  # the loop is closed
                self._sock.close()
                return

    def _done(self, problem: OSError | None) -> None:
        written, self._written = self._written, None
        if self._closed:
            self._sock.close()
        if written is None or written.done():
            return
        if problem is None:
            written.set_result(None)
        else:
            written.set_exception(problem)
            written.exception()  # the stream may be over, and no task waits for it

    async def _write_in_loop(self, parts: Sequence[memoryview]) -> None:
        room = asyncio.Event()
        left = [*parts]
        self._loop.add_writer(self._sock, room.set)
        try:
            while left:
                await room.wait()
                room.clear()
                with contextlib.suppress(BlockingIOError):
                    left = behind(left, self._sock.sendmsg(left, (), socket.MSG_DONTWAIT))
        finally:
            self._loop.remove_writer(self._sock)
