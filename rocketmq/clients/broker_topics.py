"""The topics that a broker of RocketMQ has from its start, without a request for them.

    TBW102                     the model after which a topic is made that a client sends to
    <cluster>, <broker>        named after themselves: tools find them, no client sends there
    <cluster>_REPLY_TOPIC      answers of request and reply
    SCHEDULE_TOPIC_XXXX, RMQ_SYS_TRANS_*, rmq_sys_*   what the broker itself puts
    SELF_TEST_TOPIC, BenchmarkTest, OFFSET_MOVED_EVENT

Queues and permissions are those of TopicConfigManager (RocketMQ 5.5). Clients ask for the routes of
these topics, so a node answers as if it had them; a store needs a row only once something is put
there.
"""

from typing import Final

from tandemlog.format.constants import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    UNDECIDED_TOPIC,
)
from tandemlog_server.storage.metadata.topics import TopicConfig

AUTO_CREATED: Final = "TBW102"
"""RocketMQ's AUTO_CREATE_TOPIC_KEY_TOPIC."""
PERM_INHERIT: Final = 1
"""That a topic may be made after this one."""
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_READ_WRITE: Final = PERM_READ | PERM_WRITE
_QUEUES: Final = {
    "SELF_TEST_TOPIC": 1,
    "BenchmarkTest": 1024,
    "OFFSET_MOVED_EVENT": 1,
    SCHEDULE_TOPIC: 18,
    HALF_TOPIC: 1,
    OP_HALF_TOPIC: 1,
    UNDECIDED_TOPIC: 1,
    TIMER_TOPIC: 1,
}


def broker_topics(cluster: str, broker: str, *, queues: int = 8) -> dict[str, TopicConfig]:
    """By name, for the broker `broker` of `cluster`. `queues`: the most of a topic that is made as
    clients send."""
    topics = [
        TopicConfig(AUTO_CREATED, queues, queues, _READ_WRITE | PERM_INHERIT),
        TopicConfig(cluster, 16, 16, _READ_WRITE | PERM_INHERIT),
        TopicConfig(f"{cluster}{REPLY_SUFFIX}", 1, 1, _READ_WRITE),
        *(TopicConfig(name, count, count, _READ_WRITE) for name, count in _QUEUES.items()),
    ]
    named = {each.name: each for each in topics}
    # a cluster of one broker may have its name
    named.setdefault(broker, TopicConfig(broker, 1, 1, _READ_WRITE | PERM_INHERIT))
    return named
