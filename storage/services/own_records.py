"""Records of this node's services on their way into the log, and where they are then."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tandemlog.format.constants import is_system_topic, stored_name_fault
from tandemlog.format.files.names import names_a_folder
from tandemlog.format.record.batch import RecordBatch

from ..puts.put_path import PutResult


class NewRecord(NamedTuple):
    """A framed record, and the queue that it goes to."""

    topic: str
    queue_id: int
    record: bytes


class Place(NamedTuple):
    """Where a record stands: in its queue, and in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def batch_of_records(rows: Sequence[NewRecord]) -> RecordBatch:
    """In their order; at least one."""
    table = {place: entry for entry, place in enumerate(dict.fromkeys(row[:2] for row in rows))}
    topics = {topic: number for number, topic in enumerate(dict.fromkeys(row[0] for row in rows))}
    return RecordBatch(
        records=b"".join(row.record for row in rows),
        sizes=np.array([len(row.record) for row in rows], np.uint32),
        queue_indexes=np.array([table[row[:2]] for row in rows], np.uint16),
        topics=tuple(topics),
        queue_topics=np.array([topics[topic] for topic, _ in table], np.uint32),
        queue_ids=np.array([queue_id for _, queue_id in table], np.uint32),
    )


def places_of(rows: Sequence[NewRecord], result: PutResult) -> list[Place]:
    """Of the records that were appended as one batch."""
    entries: dict[tuple[str, int], int] = {}
    numbers = [entries.setdefault(row[:2], len(entries)) for row in rows]
    places = []
    for segment in result.segments:
        offset, following = segment.physical_offset, segment.queue_offsets.tolist()
        for index in range(segment.first_index, segment.first_index + segment.count):
            row, entry = rows[index], numbers[index]
            places.append(Place(row.topic, row.queue_id, following[entry], offset))
            following[entry] += 1
            offset += len(row.record) + segment.record_extra
    return places


def target_fault(topic: str) -> str | None:
    """Why no message can come to this topic, None if one can: a broker may have written any name
    into a record that waits, or into a half."""
    fault = stored_name_fault(topic)
    if fault is None and not names_a_folder(topic):
        return f"{topic!r} cannot be the name of a folder"
    if fault is None and is_system_topic(topic):
        return f"{topic!r} is one of the store's own topics"
    return fault
