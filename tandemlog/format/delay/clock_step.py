"""The record that says that a master's clock was set: what waits for a delay is shifted with it.

    SERVICE_TOPIC/0   TAGS=delays   {"clock_step_ms": -7200000}

A delay counts from the store time of its record. If the clock behind store times is set back by two
hours, a message that waits for another ten minutes would wait for two hours and ten minutes; if it
is set forward, the message would come at once. The record stands in the log, so that every node
shifts the same messages by the same time, those that stand before it.
"""

import json
from typing import Final

from ..constants import SERVICE_TOPIC, TAGS
from ..errors import FormatError
from ..record.record import decode_record, encode_record

TAG: Final = "delays"
_STEP: Final = "clock_step_ms"
_MOST_MS: Final = 1 << 53


def clock_step_record(step_ms: int, *, now_ms: int, host: str) -> bytes:
    """`host` is the master's address in the log."""
    return encode_record(
        topic=SERVICE_TOPIC,
        body=json.dumps({_STEP: step_ms}).encode(),
        properties={TAGS: TAG},
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def step_of(record: bytes) -> int:
    """By how many ms the clock was set, as a record of SERVICE_TOPIC says; 0 for any other."""
    try:
        decoded = decode_record(record, check_crc=False)
        if decoded.tags != TAG:
            return 0
        step = json.loads(decoded.body)[_STEP]
    except (FormatError, ValueError, KeyError, TypeError):
        return 0
    return step if isinstance(step, int) and abs(step) < _MOST_MS else 0
