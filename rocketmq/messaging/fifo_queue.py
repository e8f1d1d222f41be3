"""Which queue the messages of a group (`message_group`) go to: always the same one.

RocketMQ's proxy takes Guava's consistentHash of the Java hash of the name. So does this, and a
group's messages stay in their queue when a node takes a broker's place. With one queue more, only
the groups that move there move.
"""

from typing import Final

from tandemlog.format.java_hash import java_hash

_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1
_BUCKETS: Final = float(1 << 31)


def queue_of_group(message_group: str, queues: int) -> int:
    """0 .. queues - 1; `queues` is at least 1."""
    state = java_hash(message_group) & _MASK
    chosen = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((chosen + 1) / (((state >> 33) + 1) / _BUCKETS))
        if following >= queues:
            return chosen
        chosen = following
