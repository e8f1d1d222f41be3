"""A get of a few messages, without arrays.

    units     [offset size code] [offset size code]        at most FEW
    log       [record          ] [record          ]        copied first, then compared

Work by columns costs the same for one row as for hundreds: a get of two messages would spend a
hundred microseconds on some forty calls, and a consumer that keeps up with 256 queues finds two
messages in each. Here a message costs two microseconds.

Anything unusual (a pre-blank unit, records that are gone, an IPv6 host, a unit of a light queue,
bytes that differ from their unit or cannot be read) is left to the columns, which handle it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from tandemlog.format.constants import FIXED_SIZE, MAGIC_V1, MAGIC_V2
from tandemlog.format.files.queue_unit import UNIT, UNIT_SIZE
from tandemlog.format.record.property_crc import wrong_property_crc
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from ..errors import OffsetOutOfRangeError, UnreadableError
from ..log.commit_log import CommitLog
from ..positions import Position
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.queue_table import QueueTable
from ..stats import StoreStats
from .results import GetResult, GetStatus

FEW: Final = 96
"""Above, columns cost less."""
MOST_BYTES: Final = 1 << 20
"""Between the first record and the end of the last: whether they are in memory is one question."""

_HEAD: Final = Struct(">iI4xi4xqqi44xi")
"""Size, magic, queue id, queue offset, physical offset, system flag, and the body's length."""
_IPV6: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6

_Unit = tuple[int, int, int]
"""Log offset, size, tags code."""

assert _HEAD.size == FIXED_SIZE


class FewRecords:
    """The gets of few messages of one store; any number of threads."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        table: QueueTable,
        confirmed: Position,
        stats: StoreStats,
        *,
        property_crc: bool,
    ) -> None:
        self._log = log
        self._queues = queues
        self._table = table
        self._confirmed = confirmed
        self._stats = stats
        self._property_crc = property_crc

    def get_in_memory(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int, max_bytes: int
    ) -> GetResult | None:
        """See StoreReader."""
        dense = self._table.get(topic, queue_id)
        if dense < 0 or not 0 < max_messages <= FEW:
            return None
        maximum = self._queues.max_offset(dense)
        floor = self._queues.log_minimum
        minimum = self._queues.min_offset(dense)
        if not minimum <= queue_offset < maximum:
            return None
        units_a_file = self._queues.file_size // UNIT_SIZE
        in_file = units_a_file - queue_offset % units_a_file
        count = min(max_messages, maximum - queue_offset, in_file)
        if not self._queues.in_memory(dense, queue_offset, count):
            return None
        found = self.get(
            dense, queue_offset, minimum, maximum, count, max_bytes, floor, in_memory=True
        )
        if found is not None:
            self._stats.count_get()
        return found

    def get_nothing(self, topic: str, queue_id: int, queue_offset: int) -> GetResult | None:
        """See StoreReader."""
        dense = self._table.get(topic, queue_id)
        if dense < 0:
            if queue_offset:
                return None
            result = GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        else:
            maximum = self._queues.max_offset(dense)
            minimum = self._queues.min_offset(dense)
            if queue_offset != maximum or queue_offset < minimum:
                return None
            if maximum:
                status = GetStatus.OFFSET_OVERFLOW_ONE
                result = GetResult(status, queue_offset, minimum, maximum)
            else:
                result = GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        self._stats.count_get()
        self._stats.count_miss()
        return result

    def get(
        self,
        dense: int,
        queue_offset: int,
        minimum: int,
        maximum: int,
        count: int,
        max_bytes: int,
        log_start: int,
        *,
        in_memory: bool = False,
    ) -> GetResult | None:
        """At most `count` messages of a queue that holds `minimum`..`maximum`, whose records at or
        above `log_start` are all there: the first, and more while all have at most `max_bytes`.
        None if something is unusual, and with `in_memory` if the disk would have to be read."""
        log_start = max(log_start, self._log.min_offset)
        cells = self._queues.read(dense, queue_offset, count).tobytes()
        units = _taken(list(UNIT.iter_unpack(cells)), max_bytes, log_start)
        if not units:
            return None
        records = self._copy(units, in_memory)
        if records is None or not self._are_right(records, units, dense, queue_offset):
            return None
        self._stats.count_found(dense, len(units), len(records))
        return GetResult(
            GetStatus.FOUND,
            queue_offset + len(units),
            minimum,
            maximum,
            np.array([size for _, size, _ in units], np.uint32),
            records,
            self._confirmed.value - units[-1][0],
        )

    def _copy(self, units: Sequence[_Unit], in_memory: bool) -> bytes | None:
        first = units[0][0]
        size = units[-1][0] + units[-1][1] - first
        if size > MOST_BYTES:
            return None
        log = self._log
        try:
            view = log.view_in_memory(first, size) if in_memory else log.view(first, size)
        except (OffsetOutOfRangeError, UnreadableError):
            return None
        if view is None:
            return None
        if size == sum([each for _, each, _ in units]):  # end to end: a topic that is alone
            return bytes(view)
        return b"".join([view[at - first : at - first + each] for at, each, _ in units])

    def _are_right(
        self, records: bytes, units: Sequence[_Unit], dense: int, queue_offset: int
    ) -> bool:
        """Whether the copies, end to end, fit their units. A cut of the log may change a view, but
        not a copy."""
        topic, queue_id = self._table.name(dense)
        encoded = topic.encode()
        # the length's low byte and the text: a record of either version has them side by side
        text = bytes((len(encoded) & 0xFF,)) + encoded
        head, starts, checks_crc = _HEAD.unpack_from, records.startswith, self._property_crc
        begin, number = 0, queue_offset
        for at, size, _ in units:
            stored, magic, queue, offset, physical, flag, length = head(records, begin)
            if magic == MAGIC_V1:
                place = begin + FIXED_SIZE + length
            elif magic == MAGIC_V2:
                place = begin + FIXED_SIZE + 1 + length
            else:
                return False
            end = begin + size
            if (
                stored != size
                or queue != queue_id
                or offset != number
                or physical != at
                or flag & _IPV6
                or length < 0
                or not starts(text, place, end)
                or (checks_crc and wrong_property_crc(records[begin:end]))
            ):
                return False
            begin, number = end, number + 1
        return True


def _taken(units: list[_Unit], max_bytes: int, log_start: int) -> list[_Unit]:
    """The first unit, and more while all records have at most `max_bytes`; none if one of them has
    no record, or records overlap."""
    total, end = 0, log_start
    for number, (at, size, _) in enumerate(units):
        if at < end or size < FIXED_SIZE:
            return []
        total, end = total + size, at + size
        if number and total > max_bytes:
            return units[:number]
    return units
