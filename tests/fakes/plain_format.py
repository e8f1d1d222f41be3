"""What the columns of tandemlog.format do for many, told for one: to make files, and as a model."""

from tandemlog.format.constants import IPV6_EXTRA, MAX_TOPIC_V1, MIN_RECORD_SIZE
from tandemlog.format.files.index_layout import MAX_TIME_DIFF
from tandemlog.format.files.queue_unit import UNIT
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6


def encode_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    """The 20 bytes of a unit of a consume queue."""
    return UNIT.pack(physical_offset, size, tags_code)


def record_size(
    body: int, topic: int, properties: int, *, sys_flag: int = 0, version: int | None = None
) -> int:
    """Bytes of a record whose parts have these lengths (bytes); `version` as in encode_record."""
    if version is None:
        version = 1 if topic <= MAX_TOPIC_V1 else 2
    extra = IPV6_EXTRA * (bool(sys_flag & BORN_HOST_IPV6) + bool(sys_flag & STORE_HOST_IPV6))
    return MIN_RECORD_SIZE + (version - 1) + extra + body + topic + properties


def time_diff(begin_timestamp: int, store_timestamp: int) -> int:
    """An index entry's seconds after its file's begin; 0 if the file has none or time ran back."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), MAX_TIME_DIFF)
