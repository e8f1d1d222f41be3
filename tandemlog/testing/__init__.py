"""tandemlog.testing: a cluster inside the process of your tests.

    import tandemlog.testing

    with tandemlog.testing.Cluster(topics={"orders": 4}) as cluster:
        with tandemlog.Producer(cluster.endpoint) as producer: ...

The nodes are the real ones: the same store, put path, replication, election and gRPC services as in
`tandemlog node`. Only what they stand on differs: disks in memory, and a date that the test moves.
They serve on ports of 127.0.0.1 that the kernel chooses, in a thread of this process.

pytest loads `pytest_plugin` by itself: the fixtures `tandemlog_cluster` and `tandemlog_topic`.
docs/testing.md has examples of everything. Names are loaded when they are first used, so a test run
that does not use the fixtures loads no node.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..lazy import server_needs

if TYPE_CHECKING:
    from .async_cluster import AsyncCluster
    from .cluster import Cluster
    from .memory_files import MemoryFiles
    from .node_clock import NodeClock

__all__ = ["AsyncCluster", "Cluster", "MemoryFiles", "NodeClock"]

_HOME = {
    "AsyncCluster": "async_cluster",
    "Cluster": "cluster",
    "MemoryFiles": "memory_files",
    "NodeClock": "node_clock",
}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        raise server_needs("tandemlog.testing", error) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
