"""The event loop behind the synchronous clients: one thread for all of a process.

gRPC's asyncio side keeps state across the loops of a process, and does not like to see one of
them close; so there is one, started by the first client, and it stays: idle, it costs nothing.

It must be a thread of the system. gevent and eventlet replace threads by greenlets of one thread:
a caller that waits for the loop would keep it from running, without a word.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar, Generic, Optional, Protocol, Self, TypeVar

from ..errors import ClientClosedError, MonkeyPatchedError, TandemlogError
from ..forks import forked_error, inherited, watch

ResultT = TypeVar("ResultT")


class LoopThread:
    """A running loop; `run` waits in the calling thread for what it is given."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _of_process: ClassVar[Optional["LoopThread"]] = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="tandemlog-client", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_process(cls) -> "LoopThread":
        """This process's loop; after a fork the child gets one of its own. Raises
        MonkeyPatchedError."""
        _check_threads()
        with cls._lock:
            if cls._of_process is None:
                cls._of_process = LoopThread()
            return cls._of_process

    @classmethod
    def in_child(cls) -> None:
        """After a fork, in the child: the lock may be held by a thread that is not there."""
        cls._lock = threading.Lock()
        cls._of_process = None

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of `work`, done in the loop. An interrupt (Ctrl-C) cancels it there. Raises
        ForkedClientError in a fork of the process that made this loop."""
        if self._process != os.getpid():
            work.close()
            raise forked_error("client")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a synchronous client cannot be called from a future's callback, which runs in "
                "the client's own thread: hand over to another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except TandemlogError as error:
            # how the loop came to it is 60 lines of a traceback, and nothing for the caller
            error.__traceback__ = None
            raise
        except BaseException:
            future.cancel()
            raise


class _AsyncClient(Protocol):
    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=_AsyncClient)


class SyncClient(Generic[ClientT]):
    """What the generated clients share: a client for asyncio, and the loop in which it runs."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._open_thread: LoopThread | None = LoopThread.of_process()
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if inherited(self):
            return
        thread, self._open_thread = self._open_thread, None
        if thread is not None:
            thread.run(self._client.close())

    @property
    def _thread(self) -> LoopThread:
        """Raises ClientClosedError."""
        if self._open_thread is None:
            raise ClientClosedError("the client is closed")
        return self._open_thread


def _check_threads() -> None:
    """Raises MonkeyPatchedError."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    by = ""
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "thread"))):
        by = "gevent"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        by = "eventlet"
    if by:
        raise MonkeyPatchedError(
            f"{by}'s monkey patching has replaced the threads of this process, so a synchronous "
            "client would wait for ever: use a worker class with threads (gunicorn: gthread), or "
            + ("monkey.patch_all(thread=False)" if by == "gevent" else "monkey_patch(thread=False)")
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LoopThread.in_child)
