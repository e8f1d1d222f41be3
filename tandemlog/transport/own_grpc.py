"""gRPC as this process can use it, also if the process is a fork of one that has used it.

The names `grpc` and `aio` of this module are loaded when they are first used, which is with the
first channel: importing a client is cheap, and a process that only imported one is forked without
any of the following.

    parent   grpc ── core: poller and other threads ──▶ connections
      │ fork: the threads are gone, their locks and the connections are copied
    child    grpc (inherited, never touched again)
             a second copy of the library, loaded at the first channel ──▶ connections of its own

A fork has only the thread that forked. gRPC's core waits for ever for its other threads, and its
asyncio side cannot be started again. So a forked process loads the extension module once more,
from a copy of its file (grpc_copy.py): the loader takes it for another library, with state of its
own. It costs 40 ms and about 20 MB, once for a process, and nothing in a child that opens no
channel. The names `grpc` and `aio` of this module are the copy from then on; the package `grpc` of
other code stays what it was. docs/decisions/0037-clients-and-forks.md says what else was tried.

What was inherited must never be freed, not even at exit: to free a channel or a call is to talk to
the core, which would wait for its threads, abort, or write to a connection that belongs to the
parent. The same holds for the parent's event loops, whose selector both processes share. So a child
keeps all channels, calls, loops and tasks.
"""

import asyncio
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from ..lazy import lazy, load

if TYPE_CHECKING:
    import grpc as grpc
    from grpc import aio as aio

    from . import grpc_copy
else:
    grpc_copy = lazy(f"{__package__}.grpc_copy")

CallT = TypeVar("CallT")

_lock = threading.Lock()
_forks = 0
"""How many forks lie between this process and the one that loaded gRPC first."""
_inherited = False
_channels: "weakref.WeakSet[aio.Channel]" = weakref.WeakSet()
_calls: "weakref.WeakSet[Any]" = weakref.WeakSet()
_loops: "weakref.WeakSet[asyncio.AbstractEventLoop]" = weakref.WeakSet()


class OwnGrpcError(Exception):
    """This process is a fork and cannot load gRPC for itself."""


def __getattr__(name: str) -> Any:
    """Only called while `grpc` and `aio` are not loaded."""
    if name not in ("grpc", "aio"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["grpc"], globals()["aio"] = load("grpc"), load("grpc.aio")
    load(f"{__package__}.grpc_copy")  # a child had better not import what it needs at the fork
    return globals()[name]


def ready() -> None:
    """Call before anything is made with `grpc` or `aio`. Raises OwnGrpcError."""
    global _inherited
    if _inherited:
        with _lock:
            if _inherited:
                names = ("grpc", "aio")
                try:
                    copies = grpc_copy.load_copy(_forks)
                except ImportError as error:
                    raise OwnGrpcError(str(error)) from error
                grpc_copy.keep([globals().get(name) for name in names])
                globals().update(zip(names, copies, strict=True))
                _inherited = False


def note_channel(channel: "aio.Channel") -> None:
    """A channel that was made in the running loop."""
    _channels.add(channel)
    _loops.add(asyncio.get_running_loop())


def note_call(call: CallT) -> CallT:
    """A call that was started; returned as it is."""
    _calls.add(call)
    return call


def _in_child() -> None:
    global _lock, _forks, _inherited
    _lock = threading.Lock()
    _forks += 1
    _inherited = "grpc" in sys.modules
    loops, channels, calls = list(_loops), list(_channels), list(_calls)
    if loops or channels or calls:
        tasks = [task for loop in loops for task in asyncio.all_tasks(loop)]
        grpc_copy.keep([loops, tasks, channels, calls])
    _loops.clear()
    _channels.clear()
    _calls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
