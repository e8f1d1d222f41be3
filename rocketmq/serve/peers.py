"""Who may connect as a slave, and whose acknowledgements count: RocketMQ's wires name no one, so
the address is all there is to go by.

An address that connects too often is closed at once, so that others find room; how much of that is
logged is bounded too.
"""

import ipaddress
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

COMPLAINT_S = 60.0
MAX_COMPLAINTS = 256


def plain_address(text: str) -> Address:
    """The address in `text`, without a scope; IPv4 where IPv6 only wraps it. Raises ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


@dataclass(frozen=True, slots=True)
class Peers:
    """`slaves`: from where slaves may come; none given: only from this machine. `in_sync`: those
    that count."""

    slaves: tuple[Network, ...] = ()
    in_sync: frozenset[Address] = frozenset()

    @staticmethod
    def of(slaves: tuple[str, ...], in_sync: tuple[str, ...]) -> "Peers":
        """Raises ValueError if a text is no address or network."""
        return Peers(
            tuple(ipaddress.ip_network(each, strict=False) for each in slaves),
            frozenset(plain_address(each) for each in in_sync),
        )

    def admits(self, address: str) -> bool:
        """Whether a slave may come from there."""
        try:
            plain = plain_address(address)
        except ValueError:
            return False
        if not self.slaves:
            return plain.is_loopback
        return any(plain in network for network in self.slaves)

    def counts(self, address: str) -> bool:
        """Whether that slave's acknowledgements count."""
        return plain_address(address) in self.in_sync


@dataclass(slots=True)
class Door:
    """The connections of one port: at most `most`, and `most_of_one` from one address."""

    peers: Peers
    most: int
    most_of_one: int
    _open: Counter[str] = field(default_factory=Counter)
    _complaints: dict[str, float] = field(default_factory=dict)

    def fault(self, address: str) -> str:
        """Why a connection from `address` must be closed; empty if it may stay."""
        if not self.peers.admits(address):
            return "rocketmq.slaves does not list this address: add it if a slave broker runs there"
        if self._open[address] >= self.most_of_one:
            return f"{self._open[address]} connections from this address are open already"
        if self._open.total() >= self.most:
            return f"{self._open.total()} connections are open already"
        return ""

    def enter(self, address: str) -> None:
        self._open[address] += 1

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def worth_logging(self, address: str, now: float) -> bool:
        """Whether to log that `address` was turned away: once a minute each."""
        logged_at = self._complaints.get(address)
        if logged_at is not None and now - logged_at < COMPLAINT_S:
            return False
        if len(self._complaints) >= MAX_COMPLAINTS:
            recent = {key: at for key, at in self._complaints.items() if now - at < COMPLAINT_S}
            if len(recent) >= MAX_COMPLAINTS:
                return False
            self._complaints = recent
        self._complaints[address] = now
        return True
