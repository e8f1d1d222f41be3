"""A second copy of gRPC's extension module, for a process that is a fork: see own_grpc.py."""

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

_EXTENSION: Final = "grpc._cython.cygrpc"


def load_copy(forks: int) -> tuple[ModuleType, ModuleType]:
    """`grpc` and `grpc.aio` of the copy; the package `grpc` of other code stays what it was.
    `forks` is how many lie between this process and the one that loaded gRPC first. Raises
    ImportError."""
    maps = Path("/proc/self/maps")
    if maps.exists() and "/libgrpc" in maps.read_text():
        raise ImportError(
            "this process was forked from one that had loaded gRPC, and this build of grpcio "
            "shares libgrpc with it: install grpcio from PyPI, or start processes by spawn"
        )
    if _EXTENSION not in sys.modules:
        raise ImportError("this process was forked while gRPC was being loaded: start it by spawn")
    names = [name for name in sys.modules if name == "grpc" or name.startswith("grpc.")]
    inherited = {name: sys.modules.pop(name) for name in names}
    try:
        with _copied(inherited[_EXTENSION].__file__ or "", forks) as path:
            finder = _CopyFinder(path)
            sys.meta_path.insert(0, finder)
            try:
                copies = importlib.import_module("grpc"), importlib.import_module("grpc.aio")
            finally:
                sys.meta_path.remove(finder)
    except OSError as error:
        raise ImportError(
            "this process was forked from one that had loaded gRPC and cannot load it again: "
            f"{error}; start it by spawn"
        ) from error
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "grpc"]:
            del sys.modules[name]
        sys.modules.update(inherited)
    keep(inherited)
    return copies


@contextlib.contextmanager
def _copied(source: str, forks: int) -> Iterator[str]:
    """The path of a copy of the file `source`, while it is being loaded. No two
    generations of forks have the same path: the loader would take them for the same library."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="tandemlog-grpc-") as folder:
            copy = Path(folder, f"fork{forks}-{Path(source).name}")
            copy.write_bytes(Path(source).read_bytes())
            yield str(copy)
        return
    memory = os.memfd_create("tandemlog-grpc")
    try:
        with open(source, "rb") as file:
            size, done = os.fstat(file.fileno()).st_size, 0
            while done < size:
                done += os.sendfile(memory, file.fileno(), done, size - done)
        yield f"/proc/self/fd/{'./' * forks}{memory}"
    finally:
        os.close(memory)


class _CopyFinder:
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


def keep(things: object) -> None:
    """Until the process is gone: a reference that is never given back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
