"""The record that says that a master's clock was set: what waits for a delay is shifted with it.

    SERVICE_TOPIC/0   TAGS=delays   {"clock_step_ms": -7200000, "before": 163840}

A delay counts from the store time of its record. If the clock behind store times is set back by two
hours, a message that waits for another ten minutes would wait for two hours and ten minutes; if it
is set forward, the message would come at once. The record stands in the log, so that every node
shifts the same messages by the same time: those whose records were stored by the clock as it was,
below log offset `before`. Records between there and this one have times of the new clock.
"""

import json
from typing import Final, NamedTuple

from ..constants import SERVICE_TOPIC, TAGS
from ..errors import FormatError
from ..record.record import decode_record, encode_record

TAG: Final = "delays"
_STEP: Final = "clock_step_ms"
_BEFORE: Final = "before"
_MOST: Final = 1 << 53


class ClockStep(NamedTuple):
    """The clock was set by `step_ms`; records below log offset `before` have times of the clock as
    it was."""

    step_ms: int
    before: int


def clock_step_record(step: ClockStep, *, now_ms: int, host: str) -> bytes:
    """`host` is the master's address in the log."""
    return encode_record(
        topic=SERVICE_TOPIC,
        body=json.dumps({_STEP: step.step_ms, _BEFORE: step.before}).encode(),
        properties={TAGS: TAG},
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def step_of(record: bytes) -> ClockStep | None:
    """What a record of SERVICE_TOPIC says of the clock; None for any other."""
    try:
        decoded = decode_record(record, check_crc=False)
        if decoded.tags != TAG:
            return None
        said = json.loads(decoded.body)
        step = ClockStep(said[_STEP], said.get(_BEFORE, decoded.physical_offset))
    except (FormatError, ValueError, KeyError, TypeError, AttributeError):
        return None
    numbers = all(isinstance(each, int) and abs(each) < _MOST for each in step)
    return step if numbers and step.step_ms else None
