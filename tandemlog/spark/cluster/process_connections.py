"""One connection to each cluster for a process, created on first use.

Spark forks its Python workers and reuses them for many tasks. Channels must not be created before
the fork, and are worth keeping after it: to find the cluster takes as long as a micro-batch.
Connections are never closed, since Spark kills workers without notice.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from tandemlog.cluster.connection import Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.errors import TandemlogError
from tandemlog.sync.loop_thread import LoopThread

from .cluster_errors import ClusterError
from .live_options import ClusterOptions

ResultT = TypeVar("ResultT")

_lock: Final = threading.Lock()
_connections: Final[dict[tuple[int, ClusterOptions], Connection]] = {}


def connection_of(options: ClusterOptions) -> Connection:
    """This process's connection; to be used in its loop only."""
    with _lock:
        key = (os.getpid(), options)
        if key not in _connections:
            _connections[key] = Connection(
                options.endpoint,
                ConnectionOptions(
                    request_timeout_ms=options.request_timeout_ms,
                    retry_timeout_ms=options.retry_timeout_ms,
                    security=options.security,
                ),
            )
        return _connections[key]


def run(work: Coroutine[Any, Any, ResultT], doing: str) -> ResultT:
    """The result of `work` in the process's loop. Raises ClusterError, which names what was being
    done (`doing`), if the cluster fails."""
    try:
        return LoopThread.of_process().run(work)
    except TandemlogError as error:
        raise ClusterError(f"{doing}: {error}") from None


def start(work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
    """Start `work` in the process's loop."""
    return asyncio.run_coroutine_threadsafe(work, LoopThread.of_process().loop)
