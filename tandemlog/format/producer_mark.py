"""The mark of an idempotent request: a property of its first record.

    __TL_SEQ = producer_id,epoch,sequence,index,count

The request of this producer, epoch and sequence has `count` records, and this one is its number
`index`. The bytes of the log alone tell what was stored of it, on every replica.
"""

import re
from dataclasses import dataclass
from typing import Final

from .errors import FormatError

MAX_PRODUCER_ID: Final = 64
_PRODUCER_ID: Final = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_PRODUCER_ID}}}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_MAX_I32: Final = (1 << 31) - 1
_MAX_I64: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ProducerMark:
    """Raises FormatError for a producer id that is not 1 to 64 of `A-Z a-z 0-9 . _ : -`, or a
    number out of its range: epoch and count below 2**31, sequence below 2**63, index < count."""

    producer_id: str
    epoch: int
    sequence: int
    index: int
    count: int

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

    def encode(self) -> str:
        """The property's value."""
        return f"{self.producer_id},{self.epoch},{self.sequence},{self.index},{self.count}"


def producer_id_fault(producer_id: str) -> str | None:
    """Why this cannot be a producer's id, or None."""
    if _PRODUCER_ID.fullmatch(producer_id) is None:
        return f"it must be 1 to {MAX_PRODUCER_ID} of the characters A-Z a-z 0-9 . _ : -"
    return None


def parse_producer_mark(value: str | bytes) -> ProducerMark:
    """The mark in the property's value; raises FormatError where it is none."""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
    producer_id, *numbers = text.split(",")
    if len(numbers) != 4 or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise FormatError(f"producer mark {text!r} is not `producer_id,epoch,sequence,index,count`")
    epoch, sequence, index, count = (int(number) for number in numbers)
    return ProducerMark(producer_id, epoch, sequence, index, count)
