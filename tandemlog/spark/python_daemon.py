"""Spark's parent of Python workers, on a PySpark that is compiled.

    module path   .../site-packages/pyspark/python/lib/pyspark.zip   sources, compiled each time
                  .../site-packages                                  the same, compiled once

Spark puts its archive first, which costs half a second of CPU time for each kind of worker that a
query starts, and a first query starts four to seven of them. If the archive belongs to an installed
PySpark, the installed files are used. This is only for sessions on one machine: elsewhere the
parent cannot know that this package is installed.

Between two tasks a worker collects garbage, which examines all objects of all its modules. So a new
worker first imports what tasks need, and then freezes these objects. The parent must not import
them: numpy and Arrow start threads, and the parent forks.

A query that needs no more rows (`show`, `limit`, `take`, a failed or cancelled query) closes the
connection while its task still writes. That is not a fault, but PySpark's parent prints a traceback
of the closed pipe for each such worker. Here the worker just ends.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from socket import socket

Loop = Callable[[socket, bool], int]
_ARCHIVE = "/pyspark/python/lib/pyspark.zip"
_OF_TASKS = ("pyspark.worker", "tandemlog.spark.segments.segment_source")


def without_archive(path: Sequence[str]) -> list[str]:
    """The module path without an archive of the PySpark that is installed on it."""
    real = {os.path.realpath(each) for each in path if each}
    return [
        each
        for each in path
        if not (each.endswith(_ARCHIVE) and os.path.realpath(each.removesuffix(_ARCHIVE)) in real)
    ]


def prepare_worker() -> None:
    """In a new worker: import what its tasks need, and keep that out of garbage collection."""
    if gc.get_freeze_count():
        return  # a child of the worker's own
    for name in _OF_TASKS:
        importlib.import_module(name)
    gc.freeze()


def quiet(work: Loop) -> Loop:
    """PySpark's loop of one worker, which ends silently if Spark has closed the connection."""

    def worker(sock: socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # At once: buffers cannot be sent any more, and unwinding would print a traceback.
            os._exit(1)

    return worker


if __name__ == "__main__":
    sys.path[:] = without_archive(sys.path)
    os.register_at_fork(after_in_child=prepare_worker)
    # Only now is this the compiled PySpark.
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
