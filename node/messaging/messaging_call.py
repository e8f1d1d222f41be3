"""One request of a client of the 5.x API, as a method of this door sees it.

    bytes ─▶ MessagingDoor: identity, rights, bounds ─▶ MessagingCall ─▶ here, or the master's door
                                                              │
    bytes ◀── one answer, or the answers of a stream ◀────────┘

A request for the master is handed on as it came, with the headers of the client, so that the master
knows the caller by the same proof.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from ..access.caller import Caller

SERVICE: Final = "apache.rocketmq.v2.MessagingService"
HANDED_ON: Final = "x-tandemlog-handed-on"
"""The header of a request that another node hands on: who gets it leads, or says that it does not.
"""
REPEATED: Final = "x-tandemlog-repeated"
"""The header of a send whose first copy may have been stored."""
CLIENT_ID: Final = "x-mq-client-id"
MOST_ID_CHARACTERS: Final = 512
"""Of a client id, which tables keep; a longer one counts as none."""
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MessagingCall:
    """`metadata` are the client's headers that count; `received_at` and `deadline` are in the
    loop's time, None for a call without an end."""

    caller: Caller
    client_id: str = ""
    metadata: Metadata = ()
    received_at: float = 0.0
    deadline: float | None = None
    handed_on: bool = False
    repeated: bool = False
    signed: bool = False
    """Whether the headers prove who calls, and not the certificate of the connection."""


Answers = Sequence[Message]
Serve = Callable[[Any, MessagingCall], Awaitable[Answers]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the service. `request` and `answer` are its messages; `streams`: it may give
    several answers. `of_master`: another node hands it on. `parks`: without a master it waits for
    one; `without_master` is the answer where none is found in time, by default a refusal."""

    name: str
    request: Any
    answer: Any
    serve: Serve
    of_master: bool = True
    streams: bool = False
    parks: bool = True
    without_master: v2.Status | None = None
    largest: int = 1 << 20
    undelivered: Callable[[Any, Answers, MessagingCall], Awaitable[None]] | None = None
    """Called with the request, and with answers that a client that is gone did not get."""

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"
