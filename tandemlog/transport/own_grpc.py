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
from a copy of its file: the loader takes it for another library, with state of its own. It costs
40 ms and about 20 MB, once for a process, and nothing in a child that opens no channel. The
names `grpc` and `aio` of this module are the copy from then on; the package `grpc` of other
code stays what it was. docs/decisions/0037-clients-and-forks.md says what else was tried.

What was inherited must never be freed, not even at exit: to free a channel or a call is to talk to
the core, which would wait for its threads, abort, or write to a connection that belongs to the
parent. The same holds for the parent's event loops, whose selector both processes share. So a child
keeps all channels, calls, loops and tasks.
"""

import asyncio
import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..lazy import load

if TYPE_CHECKING:
    import grpc as grpc
    from grpc import aio as aio

_EXTENSION: Final = "grpc._cython.cygrpc"

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
    return globals()[name]


def ready() -> None:
    """Call before anything is made with `grpc` or `aio`. Raises OwnGrpcError."""
    global _inherited
    if _inherited:
        with _lock:
            if _inherited:
                _load_copy()
                _inherited = False


def opened(channel: "aio.Channel") -> None:
    """Notes a channel that was made in the running loop."""
    _channels.add(channel)
    _loops.add(asyncio.get_running_loop())


def begun(call: CallT) -> CallT:
    """Notes a call."""
    _calls.add(call)
    return call


def _load_copy() -> None:
    maps = Path("/proc/self/maps")
    if maps.exists() and "/libgrpc" in maps.read_text():
        raise OwnGrpcError(
            "this process was forked from one that had loaded gRPC, and this build of grpcio "
            "shares libgrpc with it: install grpcio from PyPI, or start processes by spawn"
        )
    if _EXTENSION not in sys.modules:
        raise OwnGrpcError("this process was forked while gRPC was being loaded: start it by spawn")
    found = [name for name in sys.modules if name == "grpc" or name.startswith("grpc.")]
    inherited = {name: sys.modules.pop(name) for name in found}
    try:
        with _copied(inherited[_EXTENSION].__file__ or "") as path:
            finder = _CopyFinder(path)
            sys.meta_path.insert(0, finder)
            try:
                package = importlib.import_module("grpc")
                copies = {"grpc": package, "aio": importlib.import_module("grpc.aio")}
            finally:
                sys.meta_path.remove(finder)
    except OSError as error:
        raise OwnGrpcError(
            "this process was forked from one that had loaded gRPC and cannot load it again: "
            f"{error}; start it by spawn"
        ) from error
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "grpc"]:
            del sys.modules[name]
        sys.modules.update(inherited)
    _keep([inherited, *(globals().get(name) for name in copies)])
    globals().update(copies)


@contextlib.contextmanager
def _copied(source: str) -> Iterator[str]:
    """The path of a copy of the file `source`, while it is being loaded. No two
    generations of forks have the same path: the loader would take them for the same library."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="tandemlog-grpc-") as folder:
            copy = Path(folder, f"fork{_forks}-{Path(source).name}")
            copy.write_bytes(Path(source).read_bytes())
            yield str(copy)
        return
    memory = os.memfd_create("tandemlog-grpc")
    try:
        with open(source, "rb") as file:
            size, done = os.fstat(file.fileno()).st_size, 0
            while done < size:
                done += os.sendfile(memory, file.fileno(), done, size - done)
        yield f"/proc/self/fd/{'./' * _forks}{memory}"
    finally:
        os.close(memory)


class _CopyFinder(importlib.abc.MetaPathFinder):
    """Finds the extension module in its copy; everything else as ever."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _EXTENSION:
            return None
        loader = importlib.machinery.ExtensionFileLoader(fullname, self._path)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def _keep(things: object) -> None:
    """Until the process is gone: a reference that is never given back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))


def _in_child() -> None:
    global _lock, _forks, _inherited
    _lock = threading.Lock()
    _forks += 1
    _inherited = "grpc" in sys.modules
    loops = list(_loops)
    tasks = [task for loop in loops for task in asyncio.all_tasks(loop)]
    _keep([loops, tasks, list(_channels), list(_calls)])
    _loops.clear()
    _channels.clear()
    _calls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
