"""The nodes of one cluster in this process, in one event loop.

    one node      configured as the master
    2 to 5        elected by an embedded coordinator in the same loop, replication in sync mode

A node keeps its disk and its port when it stops, so it comes back as the same node. `restart_empty`
gives every node a new disk instead.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tandemlog_server.node.embedded_coordinator.server import CoordinatorServer, random_id
from tandemlog_server.node.embedded_coordinator.state_machine import Changes, Saved
from tandemlog_server.node.node import Node
from tandemlog_server.node.process.machine import Machine
from tandemlog_server.node.settings.listen_endpoints import ListenError, usable

from .memory_files import MemoryFiles
from .node_clock import NodeClock
from .node_settings import MAX_NODES, node_settings

START_S: Final = 30.0
"""Until a master acknowledges puts: seconds of a machine that is busy with other tests."""
_POLL_S: Final = 0.005
_ANY_PORT: Final = "127.0.0.1:0"
_TRIES: Final = 5


class DatedFiles(MemoryFiles):
    """A disk in memory whose files have the times of the nodes' clock."""

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        super().__init__()

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """It is the clock's."""


class MemoryDatabase:
    """The Database of an embedded coordinator in a test: the real server, and no disk.

    The state machine holds everything while the server runs. A database lets a restart find it
    again; the coordinator of a test is never restarted, so nothing has to be kept.
    """

    def __init__(self) -> None:
        self.saved = Saved(cluster_id=random_id(), member_id=random_id(), term=1)

    def commit(self, changes: Sequence[Changes]) -> None:
        """What was committed lasts as long as the process."""

    def size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


async def _start_coordinator() -> CoordinatorServer:
    """On a free port of 127.0.0.1. Raises ListenError."""
    server = CoordinatorServer(MemoryDatabase(), usable("coordinator", _ANY_PORT))
    await server.start()
    return server


@dataclass
class Place:
    """One node of the group: what stays while it is stopped."""

    name: str
    disk: DatedFiles
    endpoint: str = ""
    node: Node | None = None


class NodeGroup:
    """See the module. All methods in one event loop; one caller at a time."""

    def __init__(self, count: int, clock: NodeClock, settings: Mapping[str, Any]) -> None:
        if not 1 <= count <= MAX_NODES:
            raise ValueError(f"a cluster in a test has 1 to {MAX_NODES} nodes, not {count}")
        self._clock = clock
        self._settings = dict(settings)
        self._coordinator: CoordinatorServer | None = None
        self.places = [Place(f"n{number}", DatedFiles(clock)) for number in range(count)]

    async def start(self) -> None:
        """All nodes, until one acknowledges puts and the others follow it."""
        try:
            if len(self.places) > 1:
                self._coordinator = await _with_free_port(_start_coordinator)
            await asyncio.gather(*(self._start(place) for place in self.places))
            await self.wait_settled()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """All nodes; their disks stay."""
        await asyncio.gather(*(self.stop_node(place.name) for place in self.places))
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            await coordinator.stop()

    async def restart_empty(self) -> None:
        """All nodes, on the same ports and new disks."""
        await self.stop()
        for place in self.places:
            place.disk = DatedFiles(self._clock)
        await self.start()

    async def start_node(self, name: str) -> None:
        """A node that is stopped; returns when it follows, or leads."""
        place = self.place(name)
        if place.node is None:
            await self._start(place)
        await self.wait_settled()

    async def stop_node(self, name: str) -> None:
        """As SIGTERM does: it finishes its puts, and gives its lease back."""
        place = self.place(name)
        node, place.node = place.node, None
        if node is not None:
            await node.stop()

    def place(self, name: str) -> Place:
        """Raises ValueError for a name that no node has."""
        for place in self.places:
            if place.name == name:
                return place
        names = ", ".join(place.name for place in self.places)
        raise ValueError(f"no node is called {name!r}; the nodes are {names}")

    @property
    def master(self) -> str | None:
        """The node that accepts puts now."""
        for place in self.places:
            if place.node is not None and place.node.role.epoch() is not None:
                return place.name
        return None

    async def wait_settled(self) -> None:
        """Until the nodes that run have a master and are in sync. Without enough nodes for
        min_in_sync there may be a master that acknowledges nothing: that is waited for too, so a
        test that stops so many uses `stop_node` alone. Raises TimeoutError."""
        await self._until(self._is_settled, "a master, and every node in sync")

    async def wait_master(self) -> str:
        """The name of a node that accepts puts. Raises TimeoutError."""
        await self._until(lambda: self.master is not None, "a master")
        assert self.master is not None
        return self.master

    async def wait_writable(self, name: str, writable: bool) -> None:
        """Until a node has noticed that its disk is full, or is not; a slave takes no puts anyway.
        Raises TimeoutError."""
        node = self.place(name).node
        if node is not None and name == self.master:
            what = f"{name} has noticed the space on its disk"
            await self._until(lambda: node.store.writable is writable, what)

    def _is_settled(self) -> bool:
        nodes = [place.node for place in self.places if place.node is not None]
        if self.master is None:
            return False
        return len(self.places) == 1 or all(node.status().in_sync for node in nodes)

    async def _until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_S
        while not true():
            for place in self.places:
                if place.node is not None and place.node.fatal.done():
                    raise place.node.fatal.result()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the nodes have not reached this in {START_S:g} s: {what}")
            await asyncio.sleep(_POLL_S)

    async def _start(self, place: Place) -> None:
        async def start() -> Node:
            coordinator = "" if self._coordinator is None else self._coordinator.endpoint
            names = [each.name for each in self.places]
            listen = place.endpoint or _ANY_PORT
            settings = node_settings(names, place.name, listen, coordinator, self._settings)
            node = Node(settings, Machine(place.disk, self._clock))
            await node.start()
            return node

        place.node = await _with_free_port(start)
        place.endpoint = place.node.endpoints.advertise


async def _with_free_port(start: Callable[[], Any]) -> Any:
    """Calls `start` again if another process has taken the free port meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return await start()
        except ListenError:
            await asyncio.sleep(_POLL_S)
    return await start()
