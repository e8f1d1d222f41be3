"""One request of a RocketMQ client, as a method of this door sees it.

    frame ─▶ Command ─▶ the session's door: identity, rights, bounds ─▶ RemotingCall ─▶ Method.serve
                                                                             │
             frame ◀── Command ◀── the answer, or the error in RocketMQ's codes ◀┘

A request that waits for nothing but the log is served without a task of its own, by the method's
`begin`: a task and its turns of the loop cost more than all that is done in them.

A method returns the answer (`call.request.response(...)`), or None where the client waits for none.
It raises RemotingRefusedError with a code of RocketMQ, or any error that the other doors know; what
code these have is said in one place, by the session.
"""

import asyncio
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


@dataclass(slots=True, eq=False)
class RemotingCall:
    """See the module. `received_at` in seconds of the event loop's clock. `held_bytes` count in the
    budget of frames until the answer; `task` is the one that serves it, if one does."""

    request: Command
    caller: Caller
    connection: Connection
    received_at: float = 0.0
    held_bytes: int = 0
    task: asyncio.Task[None] | None = None


Serve = Callable[[RemotingCall], Awaitable[Command | None]]
Ended = Callable[[RemotingCall, Command | None, Exception | None], None]
"""Takes what becomes of a request that was begun: its answer, or why there is none. Called once."""
Begin = Callable[[RemotingCall, Ended], bool]


@dataclass(frozen=True, slots=True)
class Method:
    """What serves one request code. `of_master`: a node that does not lead hands the request to
    the one that does, byte for byte. `audited`: a line of the audit log for each. `begin` serves a
    request without a task; it is False, and nothing is begun, for one that may have to wait for
    more than the log, and raises what `serve` raises."""

    serve: Serve
    of_master: bool = True
    audited: bool = False
    begin: Begin | None = None
