"""A cluster inside the process of a test: `with Cluster(topics={"orders": 4}) as cluster`.

The nodes run in the thread of the synchronous clients, so a test needs no thread of its own. Every
method waits for what it does: after `stop_master` another node leads, after `restart` the node is
in sync again.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from ..consume.consumer import AsyncConsumer
from ..consume.reading.positions import EARLIEST
from ..consume.received.received_message import ReceivedMessage
from ..sync.generated.admin import Admin
from ..sync.loop_thread import LoopThread
from .memory_files import ENDLESS, MemoryFiles
from .node_clock import NodeClock
from .node_group import NodeGroup

NOT_RUNNING: Final = (
    "the cluster is not running: use it as `with Cluster() as cluster:`, or call start"
)


class Cluster:
    """See the module.

    `topics`: number of queues of each topic that exists from the start. `nodes`: 1, or 2 to 5 that
    replicate and elect their master. `settings`: those of a node (docs/configuration.md), by
    section. `clock` is the nodes' date. Raises ValueError for settings that do not exist.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.clock = NodeClock()
        self._topics = dict(topics or {})
        self._group = NodeGroup(nodes, self.clock, settings or {})
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all nodes, and creates the topics. Nothing happens if they run."""
        if self._thread is None:
            thread = LoopThread.of_process()
            thread.run(self._group.start())
            self._thread = thread
            self._create_topics()

    def stop(self) -> None:
        """Stops all nodes; their disks are gone with this object."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._group.stop())

    def clear(self) -> None:
        """Starts again with empty disks, on the same ports: no message, no offset, and only the
        topics given at the start. Close producers first: they would send what follows on messages
        that are gone."""
        self._running.run(self._group.restart_empty())
        self._create_topics()

    # ---- addresses

    @property
    def endpoint(self) -> str:
        """What a client is given: host:port of every node, separated by commas."""
        return ",".join(self.endpoints)

    @property
    def endpoints(self) -> list[str]:
        """host:port of each node, in the order of `nodes`."""
        if self._thread is None:
            raise RuntimeError(NOT_RUNNING)
        return [place.endpoint for place in self._group.places]

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes: n0, n1, ..."""
        return [place.name for place in self._group.places]

    # ---- topics and messages

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Raises TopicExistsError, InvalidTopicNameError."""
        with Admin(self.endpoint) as admin:
            admin.create_topic(name, queues)

    def delete_topic(self, name: str) -> None:
        """Raises UnknownTopicError."""
        with Admin(self.endpoint) as admin:
            admin.delete_topic(name)

    def messages(self, topic: str, *, queue_id: int | None = None) -> list[ReceivedMessage]:
        """All messages of a topic, or of one queue, in the order in which they were stored. Raises
        UnknownTopicError, UnknownQueueError."""
        return self._running.run(self._messages(topic, queue_id))

    async def _messages(self, topic: str, queue_id: int | None) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        queues = None if queue_id is None else [queue_id]
        async with AsyncConsumer(self.endpoint) as consumer:
            stream = await consumer.follow(topic, queues=queues, start=EARLIEST, until_end=True)
            async with stream:
                async for batch in stream.batches():
                    found.extend(batch)
        return sorted(found, key=lambda message: message.physical_offset)

    # ---- faults

    def master(self) -> str:
        """The name of the node that accepts puts; waits while there is none. Raises
        TimeoutError."""
        return self._running.run(self._group.wait_master())

    def stop_node(self, name: str) -> None:
        """Stops a node as SIGTERM does. Does not wait for a new master."""
        self._running.run(self._group.stop_node(name))

    def stop_master(self) -> str:
        """Stops the master, and waits until another node leads, if there is one. Returns the name
        of the node that was stopped."""
        name = self.master()
        self._running.run(self._group.stop_node(name))
        if any(place.node is not None for place in self._group.places):
            self._running.run(self._group.wait_master())
        return name

    def restart(self, name: str | None = None) -> None:
        """Starts a stopped node, or all of them, with what is on its disk; a node that runs is
        stopped first if it is named."""
        if name is not None:
            self._running.run(self._group.stop_node(name))
        names = self.nodes if name is None else [name]
        for each in names:
            self._running.run(self._group.start_node(each))

    def disk(self, name: str | None = None) -> MemoryFiles:
        """The disk of a node (the master's without a name), which can be full or fail: see
        MemoryFiles."""
        return self._group.place(name or self.master()).disk

    def fill_disk(self, name: str | None = None) -> None:
        """No space is left on the disk of a node (the master without a name): from now on it
        refuses puts with DiskFullError."""
        name = name or self.master()
        disk = self.disk(name)
        disk.capacity = disk.used_bytes
        self._running.run(self._group.wait_writable(name, False))

    def free_disk(self, name: str | None = None) -> None:
        """There is space again, and puts are accepted."""
        name = name or self.master()
        self.disk(name).capacity = ENDLESS
        self._running.run(self._group.wait_writable(name, True))

    def _create_topics(self) -> None:
        if self._topics:
            with Admin(self.endpoint) as admin:
                for name, queues in self._topics.items():
                    admin.create_topic(name, queues)

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError(NOT_RUNNING)
        return self._thread
