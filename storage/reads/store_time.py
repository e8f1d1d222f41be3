"""The store time of a record, from its head alone: a search by time looks at many records."""

from struct import Struct
from typing import Final

from tandemlog.format.constants import (
    BORN_HOST_OFFSET,
    PHYSICAL_OFFSET_OFFSET,
    SYS_FLAG_OFFSET,
)
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6

_I32, _I64 = Struct(">i"), Struct(">q")
STORE_TIME_END: Final = BORN_HOST_OFFSET + 20 + _I64.size
"""The longest head that has the store time: that of a record whose born host is an IPv6 address."""


def store_time(head: bytes | memoryview, physical_offset: int) -> int:
    """Milliseconds; -1 if the head is not that of a record at this offset of the log."""
    if _I64.unpack_from(head, PHYSICAL_OFFSET_OFFSET)[0] != physical_offset:
        return -1
    born_ipv6 = _I32.unpack_from(head, SYS_FLAG_OFFSET)[0] & BORN_HOST_IPV6
    timestamp: int = _I64.unpack_from(head, BORN_HOST_OFFSET + (20 if born_ipv6 else 8))[0]
    return timestamp
