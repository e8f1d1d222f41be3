"""Where a group stands in the queues of a topic, by the tables of this node.

    queue    | . . . . . m m m m m m |
                         ^ next      ^ end
                         committed; min_offset where nothing is committed, or what was has expired

Nothing is asked of another node, so on a slave it is a moment old.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore


class GroupPlace(NamedTuple):
    """In one queue. `dense` is the queue's index in the store, -1 before its first message;
    `committed` is None where the group has no offset; `next` is where it would read, `end` is one
    past the last message; `done`: messages between them that do not wait."""

    queue_id: int
    dense: int
    committed: int | None
    next: int
    end: int
    done: int = 0

    @property
    def messages(self) -> int:
        """How many wait."""
        return max(0, self.end - self.next - self.done)


def group_places(
    store: MessageStore, group: str, topic: str, queues: int = 0
) -> Iterator[GroupPlace]:
    """By queue id: each queue in which the group has an offset, and those below `queues`. Leaves
    out a queue that is being rebuilt or cannot be read: the log says more of it."""
    offsets = store.consumer_offsets.of_pair(topic, group)
    for queue_id in sorted({*range(queues), *offsets}):
        committed = offsets.get(queue_id)
        dense = store.queue_table.get(topic, queue_id)
        try:
            end = 0 if dense < 0 else store.queues.max_offset(dense)
            if committed is not None and committed >= end:
                following = committed  # min_offset may have to look on the disk
            else:
                first = 0 if dense < 0 else store.queues.min_offset(dense)
                following = first if committed is None else max(committed, first)
        except (StoreError, OSError):
            continue
        yield GroupPlace(queue_id, dense, committed, following, end)
