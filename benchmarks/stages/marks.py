"""Moments that a process notes while it works, kept in memory and written at its end.

    marks.note("answered", request_id, now())  ─▶  rows of whole numbers by name  ─▶  one .npz file

A moment is `now()`: nanoseconds of CLOCK_MONOTONIC, which is the same clock for all processes of
one machine. A note costs less than a microsecond, and is made once for a request, a round or an
answer, never for a message.
"""

import gc
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

now = time.perf_counter_ns

Rows: TypeAlias = NDArray[np.int64]
"""i8[n, fields]."""


class Marks:
    """See the module. Any thread."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._fields: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, name: str, *values: int) -> None:
        """All notes of one name have as many values."""
        with self._lock:
            rows = self._rows.get(name)
            if rows is None:
                rows = self._rows[name] = array("q")
                self._fields[name] = len(values)
            rows.extend(values)

    def note_collections(self) -> None:
        """From now on, `collected`: when Python's garbage collector began, when it was done, and
        of which generation."""
        began = 0

        def heard(phase: str, about: Mapping[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = now()
            else:
                self.note("collected", began, now(), about["generation"])

        gc.callbacks.append(heard)

    def save(self, path: Path) -> None:
        with self._lock:
            tables = {
                name: np.array(rows, np.int64).reshape(-1, self._fields[name])
                for name, rows in self._rows.items()
            }
        np.savez(path, **tables)  # type: ignore[arg-type]


class Noted:
    """What a process has noted; a name without notes has no rows."""

    def __init__(self, tables: Mapping[str, Rows]) -> None:
        self._tables = dict(tables)

    @staticmethod
    def load(path: Path) -> "Noted":
        with np.load(path) as file:
            return Noted({name: file[name] for name in file.files})

    def rows(self, name: str, fields: int) -> Rows:
        return self._tables.get(name, np.empty((0, fields), np.int64))

    def between(self, name: str, fields: int, moment: int, begin: int, end: int) -> Rows:
        """The rows whose field `moment` is a time from `begin` up to `end`."""
        rows = self.rows(name, fields)
        at = rows[:, moment]
        return rows[(at >= begin) & (at < end)]


def around(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces the function `name` of `owner` (a class or a module) by `make(it)`. Raises
    AttributeError where the product has none of that name any more."""
    setattr(owner, name, make(getattr(owner, name)))
