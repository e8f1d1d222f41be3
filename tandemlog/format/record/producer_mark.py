"""The mark of an idempotent request: a property of its first record.

    __TL_SEQ = producer_id,epoch,sequence,index,count,checksum

The request of this producer, epoch and sequence has `count` records, and this one is its number
`index`. The bytes of the log alone tell what was stored of it, on every replica.

The checksum (8 hex digits) tells a repetition from another request under the same number, whose
records would be answered as stored and be nowhere. It is the producer's to choose what it covers:
equal for two attempts at the same request, different for any other one. The node compares it with
the stored one, and with nothing else (request_checksum.py has what our client takes). A mark
without one says nothing.

A mark stands once, in a request's first record. In any other place dispatch would believe one that
the put has not judged, so the name alone is refused there: a client that copies a record with its
properties would otherwise speak for the producer of the first one.
"""

import re
from dataclasses import dataclass
from typing import Final

from ..constants import NAME_END, PRODUCER_MARK, PROPERTY_END
from ..errors import FormatError

MARK_NAME: Final = PRODUCER_MARK.encode() + bytes((NAME_END,))
"""How the property begins."""
MAX_PRODUCER_ID: Final = 64
_PRODUCER_ID: Final = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_PRODUCER_ID}}}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_CHECKSUM: Final = re.compile(r"[0-9a-f]{8}")
_MAX_I32: Final = (1 << 31) - 1
_MAX_I64: Final = (1 << 63) - 1
_MAX_U32: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ProducerMark:
    """Raises FormatError for a producer id that is not 1 to 64 of `A-Z a-z 0-9 . _ : -`, or a
    number out of its range: epoch and count below 2**31, sequence below 2**63, index < count,
    checksum below 2**32."""

    producer_id: str
    epoch: int
    sequence: int
    index: int
    count: int
    checksum: int | None = None

    def __post_init__(self) -> None:
        fault = producer_id_fault(self.producer_id)
        if fault is not None:
            raise FormatError(f"producer mark: producer id {self.producer_id!r}: {fault}")
        if not 0 <= self.epoch <= _MAX_I32:
            raise FormatError(f"producer mark: epoch {self.epoch} is not between 0 and 2**31-1")
        if not 0 <= self.sequence <= _MAX_I64:
            raise FormatError(f"producer mark: sequence {self.sequence} is not in 0 to 2**63-1")
        if not 0 <= self.index < self.count <= _MAX_I32:
            raise FormatError(f"producer mark: no record {self.index} in a count of {self.count}")
        if self.checksum is not None and not 0 <= self.checksum <= _MAX_U32:
            raise FormatError(f"producer mark: checksum {self.checksum} is not in 0 to 2**32-1")

    def encode(self) -> str:
        """The property's value."""
        text = f"{self.producer_id},{self.epoch},{self.sequence},{self.index},{self.count}"
        return text if self.checksum is None else f"{text},{self.checksum:08x}"


def producer_id_fault(producer_id: str) -> str | None:
    """Why this cannot be a producer's id, or None."""
    if _PRODUCER_ID.fullmatch(producer_id) is None:
        return f"it must be 1 to {MAX_PRODUCER_ID} of the characters A-Z a-z 0-9 . _ : -"
    return None


def mark_in(properties: bytes) -> ProducerMark | None:
    """The mark among the stored properties of a request's first record, None if there is none.

    Raises FormatError for one that cannot be parsed, and for two possible readings: its name comes
    twice, or inside of another property.
    """
    place = properties.find(MARK_NAME)
    if place < 0:
        return None
    if place and properties[place - 1] != PROPERTY_END:
        raise FormatError("producer mark: its name is inside another property")
    if properties.find(MARK_NAME, place + 1) >= 0:
        raise FormatError("producer mark: its name is there twice")
    end = properties.find(PROPERTY_END, place)
    return parse_producer_mark(properties[place + len(MARK_NAME) : end if end >= 0 else None])


def parse_producer_mark(value: str | bytes) -> ProducerMark:
    """The mark in the property's value; raises FormatError if there is no mark in it."""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
    producer_id, *numbers = text.split(",")
    checksum = numbers.pop() if len(numbers) == 5 else None
    good = len(numbers) == 4 and all(_NUMBER.fullmatch(number) for number in numbers)
    if not good or (checksum is not None and _CHECKSUM.fullmatch(checksum) is None):
        raise FormatError(
            f"producer mark {text[:200]!r} is not `producer_id,epoch,sequence,index,count,checksum`"
        )
    epoch, sequence, index, count = (int(number) for number in numbers)
    known = None if checksum is None else int(checksum, 16)
    return ProducerMark(producer_id, epoch, sequence, index, count, known)
