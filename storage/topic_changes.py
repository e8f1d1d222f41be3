"""Creating or changing a topic. Clients cannot pull from a queue that its topic does not have, so a
queue with messages is not removed: they would stay in the log, and no client could read them.
"""

from contextlib import AbstractContextManager

from tandemlog.format.words import counted

from .metadata.topics import MetadataError, TopicConfig
from .store_parts import StoreParts


def create_topic(
    parts: StoreParts,
    topic: TopicConfig,
    write_lock: AbstractContextManager[object],
    *,
    update: bool,
) -> TopicConfig:
    """As TopicTable.create, and raises MetadataError (QUEUES_NOT_EMPTY) if an update would take
    away a queue with messages, StoreBusyError if it is just being rebuilt. `write_lock` keeps
    puts out between the look and the change."""
    now = parts.clock.now_ms()
    existing = parts.topics.get(topic.name)
    if not update or existing is None or topic.read_queues >= existing.read_queues:
        return parts.topics.create(topic, now, update=update)
    with write_lock:
        _check_empty(parts, topic)
        return parts.topics.create(topic, now, update=True)


def _check_empty(parts: StoreParts, topic: TopicConfig) -> None:
    following, count, last = parts.queue_table.next_queue_offsets, 0, -1
    for each in parts.reader.ranges([topic.name]):
        if each.queue_id < topic.read_queues:
            continue
        # what is not dispatched yet too
        dense = parts.queue_table.get(topic.name, each.queue_id)
        messages = max(each.max_offset, int(following[dense])) - each.min_offset
        if messages > 0:
            count, last = messages, each.queue_id
    if last >= 0:
        raise MetadataError(
            "QUEUES_NOT_EMPTY",
            "read_queues",
            f"topic {topic.name!r}: queue {last} holds {counted(count, 'message')} that could not "
            f"be pulled with {counted(topic.read_queues, 'queue')}; keep {last + 1} or more until "
            "they expire",
        )
