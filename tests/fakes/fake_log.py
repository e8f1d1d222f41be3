"""A commit log in memory that holds a client to the rules: it decodes every record that comes in
with tandemlog.format, patches what a master patches, and keeps producers' sequences.

Slow and plain on purpose: what the client is tested against should be easy to believe.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tandemlog.format.constants import (
    KEYS,
    PRODUCER_MARK,
    REAL_TOPIC,
    TAGS,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.java_hash import java_hash
from tandemlog.format.record.host import host_bytes
from tandemlog.format.record.producer_mark import ProducerMark, parse_producer_mark
from tandemlog.format.record.properties import split_keys
from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2

MAX_MESSAGE_SIZE = 1 << 20
MAX_BATCH_SIZE = 4 << 20
KEPT_SEQUENCES = 64


class RefusedError(Exception):
    """What a node answers instead of storing; the fields of tandemlog.v1.Error."""

    def __init__(
        self,
        code: common_pb2.ErrorCode.ValueType,
        message: str = "",
        *,
        field: str = "",
        limit: int = 0,
        actual: int = 0,
        record_index: int = -1,
        hint: str = "",
    ) -> None:
        super().__init__(message or common_pb2.ErrorCode.Name(code))
        self.error = common_pb2.Error(
            code=code,
            message=str(self),
            field=field,
            limit=limit,
            actual=actual,
            record_index=record_index,
            hint=hint,
        )


@dataclass
class Producer:
    epoch: int = 0
    answers: dict[int, tuple[int, int | None, broker_pb2.AppendResponse]] = field(
        default_factory=dict
    )

    @property
    def last_sequence(self) -> int:
        return max(self.answers, default=-1)


@dataclass
class FakeLog:
    """`records` in log order; `queues` lists of indexes into it."""

    store_host: str = "127.0.0.1:10911"
    now_ms: int = 1_700_000_000_000
    end: int = 0
    records: list[bytes] = field(default_factory=list)
    queues: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    removed: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: dict[str, admin_pb2.Topic] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def create_topic(self, name: str, queues: int = 4, perm: int = 6) -> None:
        self.topics[name] = admin_pb2.Topic(
            name=name, read_queues=queues, write_queues=queues, perm=perm
        )

    def decoded(self) -> list[Record]:
        return [decode_record(record) for record in self.records]

    def bodies(self, topic: str, queue_id: int | None = None) -> list[bytes]:
        """The bodies of a topic in log order."""
        return [
            record.body
            for record in self.decoded()
            if record.topic == topic and queue_id in (None, record.queue_id)
        ]

    def append(self, request: broker_pb2.AppendRequest) -> broker_pb2.AppendResponse:
        """Stores a request, or recognises it; raises RefusedError and then stores nothing."""
        records = self._check(request)
        mark = self._mark(records)
        producer = None
        if mark is not None:
            producer, answer = self._known(mark, len(records))
            if answer is not None:
                again = broker_pb2.AppendResponse()
                again.CopyFrom(answer)
                again.request_id = request.request_id
                again.duplicate = True
                return again
        answer = self._store(request, records)
        if mark is not None and producer is not None:
            producer.epoch = mark.epoch
            producer.answers[mark.sequence] = (len(records), mark.checksum, answer)
            producer.answers.pop(mark.sequence - KEPT_SEQUENCES, None)
        return answer

    def _check(self, request: broker_pb2.AppendRequest) -> list[Record]:
        sizes = struct.unpack(f"<{len(request.sizes) // 4}I", request.sizes)
        indexes = struct.unpack(f"<{len(request.queue_indexes) // 2}H", request.queue_indexes)
        assert len(sizes) == len(indexes) > 0
        assert sum(sizes) == len(request.records)
        assert len(request.queue_topics) == len(request.queue_ids)
        if len(request.records) > MAX_BATCH_SIZE:
            raise RefusedError(
                common_pb2.BATCH_TOO_LARGE, limit=MAX_BATCH_SIZE, actual=len(request.records)
            )
        records = []
        position = 0
        for index, (size, entry) in enumerate(zip(sizes, indexes, strict=True)):
            try:
                record = decode_record(request.records, position, limit=position + size)
            except FormatError as error:
                raise RefusedError(common_pb2.BAD_RECORD, str(error), record_index=index) from error
            self._check_record(record, request, entry, index)
            assert record.size == size
            records.append(record)
            position += size
        return records

    def _check_record(
        self, record: Record, request: broker_pb2.AppendRequest, entry: int, index: int
    ) -> None:
        topic = request.topics[request.queue_topics[entry]]
        assert record.topic == topic
        assert record.queue_id == request.queue_ids[entry]
        assert (record.queue_offset, record.physical_offset, record.store_timestamp) == (0, 0, 0)
        assert record.store_host == "0.0.0.0:0"
        if topic == TIMER_TOPIC:
            # a message that comes later: here it waits for ever
            topic = record.properties[REAL_TOPIC]
        settings = self.topics.get(topic)
        if settings is None:
            raise RefusedError(common_pb2.UNKNOWN_TOPIC, f"topic {topic}", record_index=index)
        if record.queue_id >= settings.write_queues:
            raise RefusedError(
                common_pb2.UNKNOWN_QUEUE, limit=settings.write_queues, record_index=index
            )
        if len(record.body) > MAX_MESSAGE_SIZE:
            raise RefusedError(
                common_pb2.MESSAGE_TOO_LARGE,
                field="body",
                limit=MAX_MESSAGE_SIZE,
                actual=len(record.body),
                record_index=index,
            )

    @staticmethod
    def _mark(records: Sequence[Record]) -> ProducerMark | None:
        assert not any(PRODUCER_MARK in record.properties for record in records[1:])
        text = records[0].properties.get(PRODUCER_MARK)
        if text is None:
            return None
        mark = parse_producer_mark(text)
        assert (mark.index, mark.count) == (0, len(records))
        return mark

    def _known(
        self, mark: ProducerMark, count: int
    ) -> tuple[Producer, broker_pb2.AppendResponse | None]:
        producer = self.producers.get(mark.producer_id)
        if producer is None:
            if mark.sequence:
                raise RefusedError(common_pb2.UNKNOWN_PRODUCER, actual=mark.sequence)
            producer = self.producers[mark.producer_id] = Producer(epoch=mark.epoch)
        if mark.epoch < producer.epoch:
            raise RefusedError(common_pb2.PRODUCER_FENCED, limit=producer.epoch, actual=mark.epoch)
        if mark.epoch > producer.epoch:
            if mark.sequence:
                raise RefusedError(common_pb2.SEQUENCE_GAP, limit=0, actual=mark.sequence)
            producer = self.producers[mark.producer_id] = Producer(epoch=mark.epoch)
        if mark.sequence in producer.answers:
            stored, checksum, answer = producer.answers[mark.sequence]
            if stored != count:
                raise RefusedError(common_pb2.SEQUENCE_CONFLICT, limit=stored, actual=count)
            if None not in (checksum, mark.checksum) and checksum != mark.checksum:
                raise RefusedError(common_pb2.SEQUENCE_CONFLICT, "sent before with other records")
            return producer, answer
        if mark.sequence > producer.last_sequence + 1:
            raise RefusedError(
                common_pb2.SEQUENCE_GAP, limit=producer.last_sequence + 1, actual=mark.sequence
            )
        if mark.sequence <= producer.last_sequence:
            return producer, broker_pb2.AppendResponse(status=broker_pb2.PUT_OK)
        return producer, None

    def _store(
        self, request: broker_pb2.AppendRequest, records: Sequence[Record]
    ) -> broker_pb2.AppendResponse:
        """As two segments where there are enough records, as at the end of a log file."""
        self.now_ms += 1
        answer = broker_pb2.AppendResponse(
            request_id=request.request_id,
            status=broker_pb2.PUT_OK,
            store_timestamp=self.now_ms,
            store_host=self.store_host,
        )
        cuts = [0, len(records) // 2, len(records)] if len(records) > 3 else [0, len(records)]
        table = {
            (request.topics[topic], queue): entry
            for entry, (topic, queue) in enumerate(
                zip(request.queue_topics, request.queue_ids, strict=True)
            )
        }
        position = 0
        for start, stop in pairwise(cuts):
            self.end += 100  # what a BLANK takes
            first = [-1] * len(table)
            base = self.end
            for record in records[start:stop]:
                queue = self.queues.setdefault((record.topic, record.queue_id), [])
                entry = table[record.topic, record.queue_id]
                offset = len(queue)
                if first[entry] < 0:
                    first[entry] = offset
                raw = request.records[position : position + record.size]
                self._put(raw, queue, offset)
                position += record.size
            answer.segments.add(
                first_index=start,
                count=stop - start,
                physical_offset=base,
                queue_offsets=struct.pack(f"<{len(first)}q", *first),
            )
        return answer

    def _put(self, raw: bytes, queue: list[int], queue_offset: int) -> None:
        record = bytearray(raw)
        born_end = 48 + (20 if record[39] & 0x10 else 8)
        struct.pack_into(">qq", record, 20, queue_offset, self.end)
        struct.pack_into(">q", record, born_end, self.now_ms)
        record[born_end + 8 : born_end + 16] = host_bytes(self.store_host)
        queue.append(len(self.records))
        self.records.append(bytes(record))
        self.end += len(record)

    def append_again(self, raw: bytes) -> None:
        """A copy of a record at the end of its queue."""
        record = decode_record(raw)
        queue = self.queues.setdefault((record.topic, record.queue_id), [])
        self._put(raw, queue, len(queue))

    def matching(self, key: str, topic: str, *, tags: bool) -> list[bytes]:
        """Records found by a key (UNIQ_KEY too) or a tag."""
        found = []
        for raw in self.records:
            record = decode_record(raw)
            keys = (
                {record.tags}
                if tags
                else {
                    record.properties.get(UNIQ_KEY),
                    *split_keys(record.properties.get(KEYS, "")),
                }
            )
            if record.topic == topic and key in keys:
                found.append(raw)
        return found

    def tag_hash(self, index: int) -> int:
        tags = decode_record(self.records[index]).properties.get(TAGS)
        return java_hash(tags) if tags else 0
