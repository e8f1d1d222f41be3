"""Where a broker is, as an operator writes it.

rocketmq://HOST:PORT                       the broker's own port (listenPort)
rocketmq://HOST:PORT,HOST:PORT/NAME        ports of name servers, and the broker's name
"""

import re
from dataclasses import dataclass

from tandemlog.format.words import quoted

SCHEME = "rocketmq://"
_PORT = re.compile("[0-9]{1,5}")
FORMS = (
    "give rocketmq://HOST:PORT with the broker's listen port, or "
    "rocketmq://HOST:PORT,HOST:PORT/NAME with its name servers and its name"
)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """`broker_name` is empty if `places` has the one place of the broker itself; else they are
    those of name servers."""

    places: tuple[tuple[str, int], ...]
    broker_name: str = ""

    def __str__(self) -> str:
        places = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                          for host, port in self.places)  # fmt: skip
        return f"{SCHEME}{places}" + (f"/{self.broker_name}" if self.broker_name else "")


def parse_address(text: str) -> BrokerAddress:
    """Raises ValueError that says what is wrong and what to write."""
    if not text.startswith(SCHEME):
        raise ValueError(f"must begin with {SCHEME}, not {text!r}: {FORMS}")
    places, slash, name = text.removeprefix(SCHEME).partition("/")
    parsed = tuple(_place(each, text) for each in places.split(","))
    if len(parsed) > 1 and not name:
        raise ValueError(f"{text!r} has several places and no name of a broker: {FORMS}")
    if slash and not name:
        raise ValueError(f"{text!r} has no name behind the slash: {FORMS}")
    return BrokerAddress(parsed, name)


def registered_place(text: str) -> tuple[str, int]:
    """Host and port as a broker registers them at a name server: RocketMQ writes no brackets, so
    `::1:10911` is port 10911 of ::1. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ValueError(f"{quoted(text)} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _place(place: str, text: str) -> tuple[str, int]:
    """An operator has to write brackets: without them the last part could belong to the address."""
    try:
        host, port = registered_place(place)
        if ":" in host and not place.startswith("["):
            raise ValueError(f"an IPv6 address must be in brackets: {quoted(place)}")
        return host, port
    except ValueError as error:
        raise ValueError(f"{error} in {text!r}: {FORMS}") from None
