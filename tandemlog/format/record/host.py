"""Hosts in a record and in a message id: 4 or 16 bytes of address, then the port as 4 bytes.

As text they look as Java prints them: `10.0.0.5:10911`, and for IPv6 eight groups in
hexadecimal, none left out: `[0:0:0:0:0:0:0:1]:5`. Any usual form of IPv6 is read.
"""

from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from ..errors import FormatError

IPV4_SIZE: Final = 8
IPV6_SIZE: Final = 20
_PORT: Final = Struct(">i")
_GROUPS: Final = Struct(">8H")


@lru_cache(maxsize=4096)
def host_bytes(text: str) -> bytes:
    """`text` as stored: 8 bytes (IPv4) or 20 (IPv6).

    Raises FormatError for anything but `1.2.3.4:5` and `[1:2:3:4:5:6:7:8]:5`; names are not
    looked up, and the zone of an IPv6 address (`%eth0`) has no place in the bytes.
    """
    address, colon, port_text = text.rpartition(":")
    if not colon or not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise FormatError(f"host {text!r} does not end in a port between 0 and 65535")
    try:
        if address.startswith("[") and address.endswith("]"):
            raw = IPv6Address(address[1:-1].partition("%")[0]).packed
        else:
            raw = IPv4Address(address).packed
    except AddressValueError:
        raise FormatError(
            f"host {text!r} is neither an IPv4 address and port (1.2.3.4:5) "
            "nor an IPv6 one ([1:2:3:4:5:6:7:8]:5)"
        ) from None
    return raw + _PORT.pack(int(port_text))


@lru_cache(maxsize=4096)
def host_text(data: bytes) -> str:
    """Stored bytes as text; raises FormatError unless there are 8 or 20 of them."""
    if len(data) == IPV4_SIZE:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}:{_PORT.unpack_from(data, 4)[0]}"
    if len(data) == IPV6_SIZE:
        groups = ":".join(f"{group:x}" for group in _GROUPS.unpack_from(data))
        return f"[{groups}]:{_PORT.unpack_from(data, 16)[0]}"
    raise FormatError(f"a stored host has {IPV4_SIZE} or {IPV6_SIZE} bytes, not {len(data)}")
