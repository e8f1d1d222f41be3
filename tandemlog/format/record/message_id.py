"""Message ids, upper-case hexadecimal.

Offset id, made by the store: store host (8 or 20 bytes) and physical offset (8), so 32 or 56
digits; it alone finds a message.

    Unique id (UNIQ_KEY), made by the client, 16 bytes (28 with IPv6), 32 or 56 digits:
    address | process id (2) | random (4) | ms since the month's start (4) | counter (2)
"""

from collections.abc import Callable
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from ..errors import FormatError
from .host import IPV4_SIZE, IPV6_SIZE, host_bytes, host_text

_OFFSET: Final = Struct(">q")
_PROCESS: Final = Struct(">HI")
MAX_IDS_AT_ONCE: Final = 1 << 16
"""The counter of a unique id tells as many apart that begin at one ms."""
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def encode_offset_id(host: str, offset: int) -> str:
    """The offset id of the message at physical `offset` of the store at `host`."""
    return (host_bytes(host) + _OFFSET.pack(offset)).hex().upper()


def decode_offset_id(text: str) -> tuple[str, int]:
    """Store host and physical offset; raises FormatError if `text` is no offset id."""
    if not _DIGITS.issuperset(text):
        raise FormatError(f"message id {text!r} is not hexadecimal")
    if len(text) not in (2 * (IPV4_SIZE + 8), 2 * (IPV6_SIZE + 8)):
        raise FormatError(f"message id {text!r} has {len(text)} digits, not 32 or 56")
    data = bytes.fromhex(text)
    return host_text(data[:-8]), _OFFSET.unpack_from(data, len(data) - 8)[0]


class UniqueIdGenerator:
    """Unique ids of one client process; not for several threads at a time.

    `address` is the client's (4 or 16 bytes), `now_ms` its clock, `random_32` gives 32 random
    bits that set two generators of one process apart. The month starts in UTC.
    """

    __slots__ = ("_counter", "_month_end", "_month_start", "_now_ms", "_prefix")

    def __init__(
        self,
        address: bytes,
        process_id: int,
        now_ms: Callable[[], int],
        random_32: Callable[[], int],
    ) -> None:
        if len(address) not in (4, 16):
            raise FormatError(f"an address has 4 or 16 bytes, not {len(address)}")
        fixed = _PROCESS.pack(process_id & 0xFFFF, random_32() & 0xFFFFFFFF)
        self._prefix = (address + fixed).hex().upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_start = 0
        self._month_end = 0

    def next_id(self) -> str:
        """An id that this generator has not given within the last 65,535, nor in another ms."""
        now = self._now_ms()
        if not self._month_start <= now < self._month_end:
            self._set_month(now)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return self._prefix + f"{now - self._month_start:08X}{counter:04X}"

    def _set_month(self, now: int) -> None:
        start = datetime.fromtimestamp(now / 1000, UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        year, month = divmod(start.year * 12 + start.month, 12)
        end = start.replace(year=year, month=month + 1)
        self._month_start = int(start.timestamp()) * 1000
        self._month_end = int(end.timestamp()) * 1000
