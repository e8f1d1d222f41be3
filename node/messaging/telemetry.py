"""Telemetry: a stream for each client, of its settings and the node's questions.

    client ──settings──▶ node     kept while the stream lasts (client_sessions.py)
           ◀─settings───          as they count (client_settings.py), at once
           ◀─a transaction that is not decided──    orphan_checks.py

Each node answers its own streams: settings come from tables that all nodes have.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from google.protobuf.message import DecodeError

from tandemlog.format.lease.policy import GroupPolicy
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.client_settings import CONSUMERS, NodeFacts, answered
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import group_of

from ..access.access_refusals import DeniedError, NotKnownError
from ..access.identities import Right
from ..process.tasks import cancelled
from .client_sessions import ClientSession, ClientSessions
from .messaging_call import MessagingCall

MOST_BYTES: Final = 1 << 20
LOOK_S: Final = 0.1
"""How soon a command that waits is given to the client."""


class Telemetry:
    """See the module. `policy_of` a group, by its name; `began` is called with each session whose
    settings came. Belongs to the loop."""

    def __init__(
        self,
        sessions: ClientSessions,
        policy_of: Callable[[str], GroupPolicy],
        max_body_bytes: int,
        began: Callable[[ClientSession], None] = lambda _: None,
    ) -> None:
        self._sessions = sessions
        self._policy_of = policy_of
        self._max_body_bytes = max_body_bytes
        self._began = began

    async def serve(
        self, requests: AsyncIterator[bytes], call: MessagingCall
    ) -> AsyncIterator[v2.TelemetryCommand]:
        """The commands for one client, until it ends its stream."""
        session = ClientSession(call)
        came = asyncio.Event()
        reading = asyncio.create_task(self._read(requests, session, came), name="telemetry")
        self._sessions.add(session)
        try:
            while not (reading.done() and not session.waiting):
                while session.waiting:
                    yield session.waiting.popleft()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S if session.is_producer else None):
                        await came.wait()
                came.clear()
        finally:
            self._sessions.remove(session)
            await cancelled(reading)

    async def _read(
        self, requests: AsyncIterator[bytes], session: ClientSession, came: asyncio.Event
    ) -> None:
        try:
            async for data in requests:
                session.call.caller.renew()
                answer = self._answer(data, session)
                if answer is not None:
                    session.waiting.append(answer)
                    came.set()
        except NotKnownError as problem:
            session.call.caller.refused(problem)
            status = made_status(v2.UNAUTHORIZED, str(problem))
            session.waiting.append(v2.TelemetryCommand(status=status))
        finally:
            came.set()

    def _answer(self, data: bytes, session: ClientSession) -> v2.TelemetryCommand | None:
        try:
            if len(data) > MOST_BYTES:
                raise MessagingRefusedError(
                    v2.PAYLOAD_TOO_LARGE,
                    f"a TelemetryCommand may have at most {MOST_BYTES} bytes, not {len(data)}",
                )
            command = v2.TelemetryCommand.FromString(data)
            if not command.HasField("settings"):
                return None  # an answer to a question that no node asks
            settings = command.settings
            made = answered(settings, self._facts(settings, session))
            session.set(settings)
        except MessagingRefusedError as problem:
            return v2.TelemetryCommand(status=made_status(problem.code, str(problem)))
        except DeniedError as problem:
            session.call.caller.refused(problem)
            return v2.TelemetryCommand(status=made_status(v2.FORBIDDEN, str(problem)))
        except DecodeError:
            text = "the request is not a valid TelemetryCommand"
            return v2.TelemetryCommand(status=made_status(v2.BAD_REQUEST, text))
        self._began(session)
        return v2.TelemetryCommand(status=made_status(v2.OK), settings=made)

    def _facts(self, settings: v2.Settings, session: ClientSession) -> NodeFacts:
        if settings.client_type not in CONSUMERS:
            return NodeFacts(self._max_body_bytes)
        group = group_of(settings.subscription.group)
        session.call.caller.require(Right.CONSUME, [group])
        return NodeFacts(self._max_body_bytes, self._policy_of(group))
