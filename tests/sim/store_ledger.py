"""What was promised to clients, and whether a store keeps it.

    fact      an acknowledged record: where in the log, where in its queue, which body
    placed    (topic, queue, queue offset) ──▶ body: whatever a client was told or has read there;
              it holds for ever, also when the record has expired and the log does not have it
    topics    those of which somebody was told that they are made
    dropped   log offset below which some node's retention has deleted files

A fact below `dropped` may be gone. Nothing else may: not because of a promotion, a crash, a full
disk. A body is in the log once, whatever a producer has sent again.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sim.ha_nodes import ViolationError
from sim.store_requests import Request
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record, is_blank
from tandemlog_server.storage.errors import OffsetOutOfRangeError, StoreBusyError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.puts.put_path import PutResult
from tandemlog_server.storage.reads.results import GetResult, GetStatus

Queue = tuple[str, int]
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Fact:
    """See the module; log offsets."""

    start: int
    end: int
    place: Place
    body: bytes


@dataclass
class Ledger:
    """See the module."""

    facts: dict[int, Fact] = field(default_factory=dict)
    placed: dict[Place, bytes] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    acknowledged: list[Request] = field(default_factory=list)
    appended_at: dict[bytes, int] = field(default_factory=dict)
    born_at: dict[bytes, float] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    dropped: int = 0

    # -- what clients are told

    def appended(self, request: Request, result: PutResult, now: float) -> None:
        """The master has stored it, or says where it did before; nothing is promised yet. `now` is
        the world's own time, in seconds."""
        for put in request.puts:
            self.born_at.setdefault(put.body, now)
        for segment in result.segments:
            for number in range(segment.count):
                body = request.puts[segment.first_index + number].body
                self.appended_at[body] = segment.physical_offset

    def acknowledge(self, request: Request, result: PutResult, store: MessageStore) -> None:
        """The producer gets its answer."""
        request.acknowledged = True
        self.acknowledged.append(request)
        for segment in result.segments:
            following = segment.queue_offsets.tolist()
            position = segment.physical_offset
            for number in range(segment.first_index, segment.first_index + segment.count):
                put, entry = request.puts[number], int(request.batch.queue_indexes[number])
                end = position + int(request.batch.sizes[number]) + segment.record_extra
                place = (put.topic, put.queue_id, following[entry])
                following[entry] += 1
                if position >= store.log.min_offset:
                    record = record_at(store, position)
                    if record is None or (place_of(record), record.body) != (place, put.body):
                        raise ViolationError(
                            f"{request} was answered with {place} at {position}, where the log "
                            f"holds {told(record)}"
                        )
                    end = position + record.size
                self.see(place, put.body)
                fact = Fact(position, end, place, put.body)
                held = self.facts.setdefault(position, fact)
                if held != fact:
                    raise ViolationError(f"two records acknowledged at {position}: {held}, {fact}")
                position = end

    def see(self, place: Place, body: bytes) -> None:
        """Somebody was told that this body is there."""
        held = self.placed.setdefault(place, body)
        if held != body:
            raise ViolationError(f"{place} was {told(held)} and is {told(body)} now")

    def check_age(self, start: int, end: int, now: float, least_s: float) -> None:
        """Retention has deleted the log from `start` to before `end`: nothing younger than that."""
        for fact in self.facts.values():
            age_s = now - self.born_at[fact.body]
            if start <= fact.start < end and age_s < least_s:
                raise ViolationError(
                    f"acknowledged {fact.place} {told(fact.body)} is deleted, {age_s:.0f} s old"
                )

    # -- what a store holds

    def check_topics(self, store: MessageStore) -> None:
        missing = sorted(topic for topic in self.topics if store.topics.get(topic) is None)
        if missing:
            raise ViolationError(f"topic {missing[0]} was made, and is not there")

    def check_log(self, store: MessageStore, damaged: Collection[int] = ()) -> None:
        """Every fact is in the log of `store`, at its place; `damaged` log offsets excuse the
        records around them."""
        log = store.log
        if log.min_offset > self.dropped:
            raise ViolationError(f"the log begins at {log.min_offset}, not {self.dropped}")
        for fact in self.facts.values():
            if fact.start < log.min_offset or hit(fact.start, fact.end, damaged):
                continue
            record = record_at(store, fact.start)
            if record is None or (place_of(record), record.body) != (fact.place, fact.body):
                raise ViolationError(
                    f"acknowledged {fact.place} {told(fact.body)} at {fact.start} is gone: the log "
                    f"is {log.min_offset}..{log.wrote.value}, there is {told(record)}"
                )

    def check_once(self, store: MessageStore, damaged: Collection[int] = ()) -> None:
        """Nothing is in the log twice, and what was acknowledged without a place is there."""
        records = list(records_of(store, damaged))
        bodies = Counter(record.body for record in records if self.counts(record))
        present = {record.body for record in records}
        torn = self.torn(damaged)
        twice = [
            body for body, count in bodies.items() if count > 1 and body.split(b".")[0] not in torn
        ]
        if twice:
            raise ViolationError(f"{len(twice)} bodies are stored twice: {told(twice[0])}")
        for request in () if damaged else self.acknowledged:
            for put in request.puts:
                at = self.appended_at.get(put.body, 0)
                if put.body not in present and at >= store.log.min_offset:
                    raise ViolationError(f"{request} was acknowledged: {told(put.body)} is nowhere")

    def counts(self, record: Record) -> bool:
        """Whether its body may be there once only."""
        return True

    def torn(self, damaged: Collection[int]) -> set[bytes]:
        """Requests of which damage took a record, and the producer's mark with it perhaps."""
        return {
            fact.body.split(b".")[0]
            for fact in self.facts.values()
            if hit(fact.start, fact.end, damaged)
        }

    def check_queues(self, store: MessageStore, damaged: Collection[int] = ()) -> None:
        """What is dispatched can be read at its place, and nothing else."""
        for topic, queue_id in sorted({place[:2] for place in self.placed}):
            self.check_queue(store, topic, queue_id, damaged)

    def check_queue(
        self, store: MessageStore, topic: str, queue_id: int, damaged: Collection[int] = ()
    ) -> None:
        found: set[int] = set()
        first = patient_get(store, topic, queue_id, 0).min_offset
        position = first
        while True:
            result = patient_get(store, topic, queue_id, position)
            for record in split(bytes(result.records), result.sizes.tolist(), damaged):
                self.see(place_of(record), record.body)
                if place_of(record)[:2] != (topic, queue_id):
                    raise ViolationError(f"{place_of(record)} is read from {topic}/{queue_id}")
                found.add(record.queue_offset)
            if result.status is not GetStatus.FOUND and result.next_offset <= position:
                break
            position = result.next_offset
        for fact in self.facts.values():
            if fact.place[:2] != (topic, queue_id) or fact.place[2] in found:
                continue
            expired = fact.start < store.log.min_offset
            if not expired and fact.end <= store.reputed.value:
                if hit(fact.start, fact.end, damaged):
                    continue
                raise ViolationError(
                    f"acknowledged {fact.place} {told(fact.body)} cannot be read: the queue holds "
                    f"{first}..{position}, the log begins at {store.log.min_offset}"
                )

    def check_offsets(self, store: MessageStore) -> None:
        """No committed offset is beyond what its group has committed."""
        for (group, topic, queue_id), highest in self.committed.items():
            held = store.consumer_offsets.offset(group, topic, queue_id)
            if held is not None and held > highest:
                raise ViolationError(f"group {group} stands at {held} of {topic}, read {highest}")

    def queues(self) -> list[Queue]:
        return sorted({place[:2] for place in self.placed})


def place_of(record: Record) -> Place:
    return record.topic, record.queue_id, record.queue_offset


def record_at(store: MessageStore, offset: int) -> Record | None:
    """The record that begins there, None where the log has none."""
    log = store.log
    try:
        data = bytes(log.read(offset, log.file_size))
        return decode_record(data, physical_offset=offset)
    except (OffsetOutOfRangeError, CorruptRecordError):
        return None


def records_of(store: MessageStore, damaged: Collection[int] = ()) -> Iterator[Record]:
    """Every record of the log; behind damage the search goes on with the next file."""
    log = store.log
    position = log.min_offset
    while position < log.wrote.value:
        data = bytes(log.read(position, log.file_size))
        inner = 0
        while inner < len(data) and not is_blank(data, inner):
            try:
                record = decode_record(data, inner, physical_offset=position + inner)
            except CorruptRecordError as fault:
                if damaged:
                    break
                raise ViolationError(f"no record in the log: {fault}") from fault
            yield record
            inner += record.size
        position += log.file_size - position % log.file_size


def patient_get(store: MessageStore, topic: str, queue_id: int, position: int) -> GetResult:
    """A queue that is made again is there as soon as that has been done."""
    for _ in range(3):
        try:
            return store.reader.get(topic, queue_id, position, 0, 1 << 20)
        except StoreBusyError:
            store.reput.run_to()
    raise ViolationError(f"{topic}/{queue_id} cannot be read at {position}, and stays so")


def split(records: bytes, sizes: list[int], damaged: Collection[int] = ()) -> Iterator[Record]:
    """The records, end to end; where the disk damages one a reader finds that out."""
    position = 0
    for size in sizes:
        try:
            yield decode_record(records, position, limit=position + size)
        except CorruptRecordError as fault:
            if not damaged:
                raise ViolationError(f"a bad record is served: {fault}") from fault
        position += size


def hit(start: int, end: int, damaged: Collection[int]) -> bool:
    return any(start <= offset < end for offset in damaged)


def told(what: Record | bytes | None) -> str:
    """In a few words."""
    if what is None:
        return "nothing"
    body = what if isinstance(what, bytes) else what.body
    text = body[:24].split(b"|")[0].decode()
    return text if isinstance(what, bytes) else f"{text} as {place_of(what)}"
