"""What ends the wait of a record, as a later record says it, by columns.

    written by tandemlog   names the waiting record by its log offset, in its header
    written by a broker    names nothing: it has the key of the message, and
                             is that message, in the topic for which it was sent (REAL_TOPIC), or
                             calls it back, or lets it wait on (TIMER_ROLL_TIMES)

So a record with the key ends all that wait with it and stand before it. The rules are those of a
node (storage/folds/delay_fold.py) and of jobs over the files of a store.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..columns.headers import HeaderColumns
from ..columns.property_layouts import find_properties
from ..constants import REAL_TOPIC, UNIQ_KEY
from .framing import FIRST_RECORD
from .waiting_columns import hash_keys

_DELAYED: Final = f"{REAL_TOPIC}\x01".encode()


def named_offsets(prepared: NDArray[np.int64]) -> NDArray[np.int64]:
    """The log offsets that records name in `prepared_transaction_offset`, which is not 0."""
    named: NDArray[np.int64] = np.where(prepared == FIRST_RECORD, 0, prepared)
    return named


def may_have_come(window: bytes) -> bool:
    """Whether a search for messages that a broker let come is needed in these records."""
    return _DELAYED in window


def keys_of_broker(
    data: NDArray[np.uint8], headers: HeaderColumns, recalls: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The hashes (hash_of_key) of the messages whose wait these records end, of those that name no
    record: `recalls` bool[n] call one back, the others may be a message that has come. 0 for a
    record that ends none."""
    names = [name.encode() for name in (UNIQ_KEY, REAL_TOPIC)]
    key, topic = find_properties(data, headers.properties_start, headers.properties_length, names)
    came = topic[1] == headers.topic_length
    came[came] = _equal(data, topic[0][came], headers.topic_start[came], topic[1][came])
    return np.where(came | recalls, hash_keys(data, topic, key), 0)


def _equal(
    data: NDArray[np.uint8],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which slices of these lengths are equal."""
    pairs = zip(left.tolist(), right.tolist(), lengths.tolist(), strict=True)
    return np.array(
        [data[one : one + size].tobytes() == data[two : two + size].tobytes()
         for one, two, size in pairs], np.bool_,
    )  # fmt: skip
