"""Records of SERVICE_TOPIC that say what became of transactions, and of the offsets in them.

    SERVICE_TOPIC/0   TAGS=transactions   body:  version | kind | fields

    COMMIT       id, the halves that are committed (log offsets), offsets of groups
    OFFSETS      offsets of groups that were set by hand, where a transaction had set them before
    TAKEN_OVER   the halves below a queue offset have ended, says the broker whose store it was

A COMMIT is one record, so a transaction has one outcome, however many messages and offsets it has:
the records of its messages follow from it, and each new master writes those that are missing. A
transaction of one message without offsets needs none: its message is the outcome.

Numbers are varints, texts have their length in front. An offset is stored with one added, and 0
says that the group has none any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ..constants import SERVICE_TOPIC, TAGS
from ..errors import FormatError
from ..protobuf_wire import WireError, put_varint, read_varint
from ..record.record import Record, encode_record

TAG: Final = "transactions"
NO_OFFSET: Final = -1
_VERSION: Final = 1


class Kind(IntEnum):
    """See the module."""

    COMMIT = 1
    OFFSETS = 2
    TAKEN_OVER = 3


class GroupOffset(NamedTuple):
    """The queue offset that a group consumes next of a queue; NO_OFFSET: it has none."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction is committed: these halves (log offsets, ascending), and these offsets."""

    transaction_id: str
    halves: tuple[int, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetsSet:
    """Offsets were set by hand."""

    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The halves below `ended_below` (a queue offset) have ended."""

    ended_below: int


Said: TypeAlias = Commit | OffsetsSet | TakenOver


def encode_said(said: Said) -> bytes:
    """The body. Raises FormatError for log offsets that do not ascend, and numbers below 0."""
    out = bytearray((_VERSION,))
    try:
        if isinstance(said, Commit):
            out.append(Kind.COMMIT)
            _put_text(out, said.transaction_id)
            _put_ascending(out, said.halves)
            _put_offsets(out, said.offsets)
        elif isinstance(said, OffsetsSet):
            out.append(Kind.OFFSETS)
            _put_offsets(out, said.offsets)
        else:
            out.append(Kind.TAKEN_OVER)
            put_varint(out, said.ended_below)
    except (ValueError, UnicodeEncodeError) as error:
        raise FormatError(f"a decision that has no stored form: {error}") from error
    return bytes(out)


def decode_said(body: bytes) -> Said:
    """Raises FormatError for a body of another version or form."""
    if len(body) < 2 or body[0] != _VERSION:
        raise FormatError(f"a decision of version {body[:1].hex() or 'none'}, not {_VERSION}")
    reader = _Reader(body, 2)
    try:
        kind = Kind(body[1])
        if kind is Kind.COMMIT:
            said: Said = Commit(reader.text(), reader.ascending(), reader.offsets())
        elif kind is Kind.OFFSETS:
            said = OffsetsSet(reader.offsets())
        else:
            said = TakenOver(reader.number())
    except (IndexError, ValueError, WireError) as error:
        raise FormatError(f"a decision of another form: {error!r}") from error
    if reader.position != len(body):
        raise FormatError(f"a decision with {len(body) - reader.position} bytes behind its end")
    return said


def said_record(said: Said, *, now_ms: int, host: str) -> bytes:
    """Its record; `host` is the master's address in the log."""
    return encode_record(
        topic=SERVICE_TOPIC,
        body=encode_said(said),
        properties={TAGS: TAG},
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def said_by(record: Record) -> Said | None:
    """What a record of SERVICE_TOPIC says of transactions; None if it is of another service.
    Raises FormatError."""
    return decode_said(record.body) if record.tags == TAG else None


def _put_text(out: bytearray, text: str) -> None:
    data = text.encode()
    put_varint(out, len(data))
    out += data


def _put_ascending(out: bytearray, numbers: Iterable[int]) -> None:
    """The count, then how much larger each is than the one before, which is at least 1."""
    rows = tuple(numbers)
    put_varint(out, len(rows))
    before = -1
    for number in rows:
        put_varint(out, number - before - 1)
        before = number


def _put_offsets(out: bytearray, offsets: Iterable[GroupOffset]) -> None:
    """By group and topic, each name once."""
    groups: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for each in offsets:
        topics = groups.setdefault(each.group, {})
        topics.setdefault(each.topic, []).append((each.queue_id, each.queue_offset))
    put_varint(out, len(groups))
    for group, topics in groups.items():
        _put_text(out, group)
        put_varint(out, len(topics))
        for topic, queues in topics.items():
            _put_text(out, topic)
            put_varint(out, len(queues))
            for queue_id, queue_offset in queues:
                put_varint(out, queue_id)
                put_varint(out, queue_offset + 1)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def number(self) -> int:
        value, self.position = read_varint(self._data, self.position)
        return value

    def text(self) -> str:
        length = self.number()
        end = self.position + length
        if end > len(self._data):
            raise ValueError(f"a text of {length} bytes does not fit")
        text = self._data[self.position : end].decode()
        self.position = end
        return text

    def ascending(self) -> tuple[int, ...]:
        numbers, before = [], -1
        for _ in range(self._count()):
            before += self.number() + 1
            numbers.append(before)
        return tuple(numbers)

    def offsets(self) -> tuple[GroupOffset, ...]:
        rows = []
        for _ in range(self._count()):
            group = self.text()
            for _ in range(self._count()):
                topic = self.text()
                for _ in range(self._count()):
                    queue_id = self.number()
                    rows.append(GroupOffset(group, topic, queue_id, self.number() - 1))
        return tuple(rows)

    def _count(self) -> int:
        """Of things that have one byte each at least."""
        count = self.number()
        if count > len(self._data) - self.position:
            raise ValueError(f"{count} things in {len(self._data) - self.position} bytes")
        return count
