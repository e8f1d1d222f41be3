"""The address of a client as a record has it: that of its connection, ipv4:10.0.0.7:51234, as
10.0.0.7:51234."""

from functools import lru_cache
from typing import Final

HOSTS_KEPT: Final = 8192


@lru_cache(maxsize=HOSTS_KEPT)
def born_host_of(peer: str) -> str:
    """A client's address as a record has it, from that of its connection."""
    family, _, address = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return "127.0.0.1:0"
    return address.replace("%5B", "[").replace("%5D", "]")
