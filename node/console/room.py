"""How many requests of whom a console answers at a time.

    a holder   one session; where callers are not asked who they are, one host
    ANSWERS    of a holder, and OF_ALL of all: each may hold an answer of some megabytes
    WAITS      the same for questions that only wait for a change of the cluster

A place is held until the caller has taken its answer: what is not read is memory. Files of the page
need none. Pure; belongs to the loop.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

ANSWERS = 16
ANSWERS_OF_ALL = 64
WAITS = 32
WAITS_OF_ALL = 512


class FullError(Exception):
    """There is no place; the text names the bound."""


class Room:
    """Places of one kind; see the module."""

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one, self._of_all = of_one, of_all
        self._taken: Counter[str] = Counter()
        self._all = 0

    @contextmanager
    def place(self, holder: str) -> Iterator[None]:
        """Raises FullError."""
        if self._taken[holder] >= self._of_one:
            raise FullError(f"{self._of_one} requests of yours are in progress: try again")
        if self._all >= self._of_all:
            raise FullError(f"{self._of_all} requests are in progress: try again")
        self._taken[holder] += 1
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._taken[holder] -= 1
            if not self._taken[holder]:
                del self._taken[holder]


def network_of(host: str) -> str:
    """Who counts as one host: an address of IPv4, and the 64 bits of one of IPv6 that a single
    machine can choose from."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
