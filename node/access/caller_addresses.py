"""Addresses of callers, as gRPC writes them, and whose share they count for."""

from collections import Counter
from collections.abc import Sequence


def peer_of(host: str, port: int) -> str:
    """A client's address as gRPC names it."""
    host = host.removeprefix("::ffff:") if "." in host else host.partition("%")[0]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def host_of(peer: str) -> str:
    """The host of an address: who holds a share, where there is no identity."""
    return peer.rpartition(":")[0] or peer


def oldest_of_busiest(hosts: Sequence[str]) -> int:
    """The index of the connection that makes room for a new one: the oldest of the host that has
    most. `hosts` are those of the connections, the oldest first."""
    (busiest, _), *_ = Counter(hosts).most_common(1)
    return hosts.index(busiest)
