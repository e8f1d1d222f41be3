"""The embedded coordinator of a cluster in a test: the real server, and no disk.

Its state machine holds everything while the server runs. The database exists so that a restart
finds it again; the coordinator of a test is never restarted, so nothing has to be kept.
"""

from collections.abc import Sequence

from node.embedded_coordinator.machine import Changes, Saved
from node.embedded_coordinator.server import CoordinatorServer, random_id
from node.settings.endpoints import usable


class MemoryDatabase:
    """See the module; a Database."""

    def __init__(self) -> None:
        self.saved = Saved(cluster_id=random_id(), member_id=random_id(), term=1)

    def commit(self, changes: Sequence[Changes]) -> None:
        """What was committed lasts as long as the process."""

    def size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


async def start_coordinator() -> CoordinatorServer:
    """On a free port of 127.0.0.1. Raises ListenError."""
    server = CoordinatorServer(MemoryDatabase(), usable("coordinator", "127.0.0.1:0"))
    await server.start()
    return server
