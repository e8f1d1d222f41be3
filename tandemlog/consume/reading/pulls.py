"""One pull: the places that are asked for, and the check that the answer belongs to them.

    places (queue, offset) ──PullRequest──▶ node ──PullAnswer──▶ each part against its place
                                                                     │
                                  Pulled: by place, a ReceivedBatch ◀┘

Records of another queue, or from before the place, would be delivered as what they are not. So an
answer that does not fit what was asked does not count at all, nor does it say that messages are
lost: another node is asked instead. Only the first and the last record of a part are checked, which
costs a few microseconds: the node has compared the queue id and offset of each with its queue
(storage/reads/record_copy.py). An older node may not have compared the topics. One wrong topic may
be a bit that flipped on its disk, and does not stop a reader; two are another queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from ...cluster.node import Node
from ...cluster.pull_answer import PullAnswer, PullPart
from ...errors import BadRecordError, UnreadableError
from ...format.constants import MULTI_DISPATCH
from ...format.record.record import place_at
from ...v1 import broker_pb2
from ..received.received_batch import ReceivedBatch, sizes_of
from ..received.received_message import ReceivedMessage
from .positions import Queue
from .selector import EVERYTHING, Selector

Place = tuple[Queue, int]
"""A queue, and the offset in it of the next message."""

_STATUS: Final = {number: name for name, number in broker_pb2.PullStatus.items()}


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer of `node`: a batch for each place in it, by the index of the place. `log_term`:
    epoch and id of the newest term of its log, zeros if it does not say."""

    node: Node
    parts: tuple[tuple[int, ReceivedBatch], ...]
    suggest_slave: bool
    log_term: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes of records."""
        return sum(len(batch.records) for _, batch in self.parts)


async def pull(
    node: Node,
    places: Sequence[Place],
    timeout_ms: int,
    *,
    max_messages: int = 0,
    max_bytes: int = 0,
    selector: Selector = EVERYTHING,
    wait_ms: int = 0,
    group: str = "",
) -> Pulled:
    """Messages from these places on, by whichever wire the node offers; `timeout_ms` is added to
    the wait for the first one. Raises the error of the call, and UnreadableError for an answer that
    does not fit."""
    request = broker_pb2.PullRequest(
        positions=[
            broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
            for (topic, queue_id), offset in places
        ],
        max_messages=max_messages,
        max_bytes=max_bytes,
        tag_hashes=selector.hashes,
        filter=selector.where,
        wait_ms=wait_ms,
        group=group,
    )
    answer = await node.pull(request, wait_ms + timeout_ms)
    if selector.where and not answer.filtered and any(part.head.count for part in answer.parts):
        _refuse(node.endpoint, "the node is of an older version, which knows no filters")
    return Pulled(
        node, checked_parts(answer, places, node.endpoint), answer.suggest_slave, answer.log_term
    )


def checked_parts(
    answer: PullAnswer, places: Sequence[Place], endpoint: str
) -> tuple[tuple[int, ReceivedBatch], ...]:
    """The parts of an answer by the index of their place. Raises UnreadableError."""
    batches: dict[int, ReceivedBatch] = {}
    for part in answer.parts:
        index = part.head.position_index
        if not 0 <= index < len(places) or index in batches:
            _refuse(endpoint, f"place {index} of {len(places)}")
        batches[index] = _batch(part, places[index], answer, endpoint)
    return tuple(batches.items())


def _batch(part: PullPart, place: Place, answer: PullAnswer, endpoint: str) -> ReceivedBatch:
    head, ((topic, queue_id), offset) = part.head, place
    status = _STATUS.get(head.status)
    if status is None or len(head.sizes) != 4 * head.count:
        _refuse(
            endpoint, f"status {head.status}, {head.count} records, {len(head.sizes)} B of sizes"
        )
    batch = ReceivedBatch(
        topic=topic,
        queue_id=queue_id,
        status=status,
        next_offset=head.next_offset,
        min_offset=head.min_offset,
        max_offset=head.max_offset,
        records=part.records,
        sizes=sizes_of(head.sizes),
        suggest_slave=answer.suggest_slave,
        log_term=answer.log_term,
    )
    if not head.count or _fits(batch, offset):
        return batch
    if not any(_may_belong_elsewhere(batch[index]) for index in (0, len(batch) - 1)):
        _, other, number, at = place_at(batch.records, 0)
        records = f"{other.decode(errors='replace')}/{number} at {at}..{head.next_offset}"
        _refuse(endpoint, f"{records}, not of {topic}/{queue_id} at {offset}")
    return batch


def _fits(batch: ReceivedBatch, offset: int) -> bool:
    """Whether its first and last record are what was asked for."""
    last_size = int(batch.sizes[-1])
    size, topic, queue_id, first = place_at(batch.records, 0)
    if len(batch) == 1:
        return (
            size == last_size == len(batch.records)
            and queue_id == batch.queue_id
            and offset <= first < batch.next_offset
        )
    place = place_at(batch.records, len(batch.records) - last_size)
    return (
        (size, place[0]) == (int(batch.sizes[0]), last_size)
        and queue_id == place[2] == batch.queue_id
        and batch.topic.encode() in (topic, place[1])
        and offset <= first < place[3] < batch.next_offset
    )


def _may_belong_elsewhere(message: ReceivedMessage) -> bool:
    """Whether the record names further queues, or cannot be decoded, which its reader will see."""
    try:
        return MULTI_DISPATCH in message.properties
    except BadRecordError:
        return True


def _refuse(endpoint: str, text: str) -> NoReturn:
    raise UnreadableError(f"{endpoint}: its answer does not fit what was asked: {text}")
