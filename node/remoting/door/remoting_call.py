"""One request of a RocketMQ client, as a method of this door sees it.

    frame ─▶ Command ─▶ the session's door: identity, rights, bounds ─▶ RemotingCall ─▶ Method.serve
                                                                             │
             frame ◀── Command ◀── the answer, or the error in RocketMQ's codes ◀┘

A method returns the answer (`call.request.response(...)`), or None where the client waits for none.
It raises RemotingRefusedError with a code of RocketMQ, or any error that the other doors know; what
code these have is said in one place, by the session.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tandemlog_server.rocketmq.wire.remoting import Command

from ...access.caller import Caller


class RemotingRefusedError(Exception):
    """A request that is answered with `code` (ResponseCode) and a sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Connection(Protocol):
    """The connection of a client, to which requests can be pushed too."""

    @property
    def peer(self) -> str:
        """As gRPC names it: ipv4:10.0.0.7:51234."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The address by which this client reached the node."""

    @property
    def closed(self) -> bool: ...

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a request to which no answer is expected; nothing happens if it is closed."""

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        """Send a request and wait for its answer. Raises ConnectionError if the client goes
        away, TimeoutError if it does not answer."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Called once in the event loop, when the connection has ended."""


@dataclass(frozen=True, slots=True)
class RemotingCall:
    """See the module. `received_at` in seconds of the event loop's clock."""

    request: Command
    caller: Caller
    connection: Connection
    received_at: float = 0.0


Serve = Callable[[RemotingCall], Awaitable[Command | None]]


@dataclass(frozen=True, slots=True)
class Method:
    """What serves one request code. `of_master`: a node that does not lead hands the request to
    the one that does, byte for byte. `audited`: a line of the audit log for each."""

    serve: Serve
    of_master: bool = True
    audited: bool = False
