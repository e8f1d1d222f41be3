"""Topics, messages and members for tests of the console's pages."""

from collections.abc import Sequence

from fakes.inner_node import stubs, until
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig


def add_topics(node: Node, *topics: TopicConfig) -> None:
    """All at once; also such as a client could not create."""
    node.store.topics.restore(topics, node.store.clock.now_ms())


async def put(node: Node, places: Sequence[tuple[str, int]]) -> None:
    """One message into each (topic, queue id); returns when all of them can be read."""
    queues = node.store.queues
    wanted = int(queues.ends().sum()) + len(places)
    async with AsyncProducer(node.endpoints.listen) as producer:
        messages = [Message(topic, b"body", queue_id=queue_id) for topic, queue_id in places]
        await producer.send_many(None, messages)
    await until(lambda: int(queues.ends().sum()) == wanted)


async def join(node: Node, group: str, *topics: str, client_id: str = "worker-1") -> None:
    """A member that is heard once, and owns all queues of the topics."""
    async with stubs(node) as channel:
        await channel.broker.GroupHeartbeat(
            broker_pb2.GroupHeartbeatRequest(
                group=group,
                member_id=client_id,
                client_id=client_id,
                number=1,
                topics=topics,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
            )
        )
