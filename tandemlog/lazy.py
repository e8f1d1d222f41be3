"""Modules that are loaded when they are first used, and whether numpy is there at all.

    if TYPE_CHECKING:
        from . import column_framing
    else:
        column_framing = lazy(f"{__package__}.column_framing")

A plain client sends and receives messages without numpy (decisions/0059-a-light-client.md): numpy
takes longer to load than all the rest, and more room than all the rest. What works by columns is in
modules that import numpy as ever, and who has use for one of them refers to it as above: the module
is loaded as a whole when a name of it is used, and from then on costs one dictionary look-up. The
import for the type checker is also what the tests of the layers see.

gRPC is loaded with the first channel, in the same way (transport/own_grpc.py).

With numpy installed, many records are handled by columns, few of them one by one. Without it, all
are handled one by one; what was asked for as columns ends with an error that says what to install.
"""

import importlib
import importlib.util
import os
import threading
from typing import Any, Final

_loading = threading.RLock()
"""Held while a module is loaded at its first use. A fork waits for it: in the child, the lock of a
module that another thread was loading would never be released."""


def load(name: str) -> Any:
    """The module `name`, which may be loaded by this call. Raises what its import raises."""
    with _loading:
        return importlib.import_module(name)


def _after_fork() -> None:
    global _loading
    _loading = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _loading.acquire(),
        after_in_parent=lambda: _loading.release(),
        after_in_child=_after_fork,
    )


class MissingPackageError(ModuleNotFoundError):
    """What was asked for needs a package that is not installed; the message says which."""


class LazyModule:
    """Stands for a module until it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Only called for a name that was not used before."""
        try:
            module = load(self._name)
        except ImportError as error:
            if error.name is None or error.name.split(".")[0] != "numpy":
                raise
            raise missing_numpy() from None
        value = getattr(module, name)
        self.__dict__[name] = value
        return value


def lazy(name: str) -> Any:
    """The module `name`, absolute, which is loaded when it is first used."""
    return LazyModule(name)


def missing_numpy() -> MissingPackageError:
    """What is raised where columns are asked for without it."""
    return MissingPackageError(
        "columns need numpy, which is not installed: pip install 'tandemlog[columns]'", name="numpy"
    )


def server_needs(what: str, error: ModuleNotFoundError) -> MissingPackageError | None:
    """What to raise where `what` is for a server, and `error` says that it is not installed; None
    if a module of ours is missing, which no package brings."""
    name = (error.name or "").split(".")[0]
    if name in ("", "tandemlog", "tandemlog_server"):
        return None
    return MissingPackageError(
        f"{what} needs {name}, which is not installed: pip install 'tandemlog[server]'", name=name
    )


def installed(name: str) -> bool:
    """Whether the package `name` can be imported; it is not loaded."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


HAVE_NUMPY: Final = installed("numpy")

FEW: Final = 48
"""Records up to which one by one is quicker than by columns."""
