"""The messages that the figures are about: 128-byte bodies with UNIQ_KEY, KEYS and TAGS."""

import random

import numpy as np

from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import TopicFrame, frame_message

BODY_BYTES = 128
QUEUES = 4


def topics(count: int) -> list[str]:
    return [f"bench-{number:04d}" for number in range(count)]


def batches(
    topic_count: int, records: int, count: int, seed: int = 1, queues: int = QUEUES
) -> list[RecordBatch]:
    """`count` requests of `records` records each, over the `queues` queues of each of `topic_count`
    topics."""
    chooser = random.Random(seed)
    names = topics(topic_count)
    frames = [TopicFrame(name, "127.0.0.1:0") for name in names]
    requests = []
    for number in range(count):
        entries: dict[tuple[int, int], int] = {}
        framed, indexes = [], []
        for record in range(records):
            place = chooser.randrange(topic_count), chooser.randrange(queues)
            indexes.append(entries.setdefault(place, len(entries)))
            properties = encode_properties(
                {
                    "UNIQ_KEY": f"7F0000010000{number:08X}{record:012X}",
                    "KEYS": f"order-{number}-{record}",
                    "TAGS": f"tag-{record % 10}",
                }
            )
            framed.append(
                frame_message(
                    frames[place[0]],
                    chooser.randbytes(BODY_BYTES),
                    properties,
                    place[1],
                    1_700_000_000_000,
                )
            )
        used = sorted({topic for topic, _ in entries})
        requests.append(
            RecordBatch(
                records=b"".join(framed),
                sizes=np.array([len(each) for each in framed], np.uint32),
                queue_indexes=np.array(indexes, np.uint16),
                topics=tuple(names[topic] for topic in used),
                queue_topics=np.array([used.index(topic) for topic, _ in entries], np.uint32),
                queue_ids=np.array([queue for _, queue in entries], np.uint32),
            )
        )
    return requests
