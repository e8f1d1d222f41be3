"""Producers of a slave, as the master finds them: each has a stream to the master's door too.

    producer ══Telemetry══ slave ══Telemetry, handed on══ master
                             ◀── a transaction that is not decided ──

A producer may be connected to slaves alone, and only the master knows which transactions are open.
When another master begins, the streams are opened there, and the producer notices nothing. This
node answers the settings by itself; of what the master says only its questions are passed on.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from grpc import aio

from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .client_sessions import ClientSession, ClientSessions
from .master_calls import MasterCalls
from .messaging_call import HANDED_ON, SERVICE

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
AGAIN_S: Final = 2.0
_PATH: Final = f"/{SERVICE}/Telemetry"


class TelemetryRelay:
    """See the module. Belongs to the loop."""

    def __init__(self, sessions: ClientSessions, master: MasterCalls) -> None:
        self._sessions = sessions
        self._master = master
        self._streams: dict[ClientSession, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(LOOK_S)
        finally:
            for each in self._streams.values():
                each.cancel()
            await asyncio.gather(*self._streams.values(), return_exceptions=True)

    def look(self) -> None:
        """Begin the streams that are missing, and end those of producers that are gone."""
        wanted = {
            each
            for each in self._sessions.all()
            if each.is_producer and not each.call.handed_on and self._may(each)
        }
        if self._master.leads():
            wanted = set()
        for session, task in list(self._streams.items()):
            if session not in wanted or task.done():
                self._streams.pop(session).cancel()
        for session in wanted - self._streams.keys():
            self._streams[session] = asyncio.create_task(
                self._keep(session), name="telemetry-relay"
            )

    @staticmethod
    def _may(session: ClientSession) -> bool:
        """Whether the master could know the producer by its headers."""
        return session.call.caller.who is None or session.call.signed

    async def _keep(self, session: ClientSession) -> None:
        while True:
            address = self._master.master_address()
            if address:
                with suppress(aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError):
                    await self._pass_on(session, address)
            await asyncio.sleep(AGAIN_S if address else LOOK_S)

    async def _pass_on(self, session: ClientSession, address: str) -> None:
        """Until the stream, or the master, ends."""
        metadata: Any = (*session.call.metadata, (HANDED_ON, "1"))
        open_stream: Any = self._master.channel(address).stream_stream(_PATH)
        stream = open_stream(metadata=metadata)
        sent = -1
        reading: asyncio.Task[Any] | None = None
        try:
            while self._master.master_address() == address:
                if session.version != sent and session.settings is not None:
                    sent = session.version
                    await stream.write(
                        v2.TelemetryCommand(settings=session.settings).SerializeToString()
                    )
                if reading is None:
                    reading = asyncio.ensure_future(stream.read())
                await asyncio.wait({reading}, timeout=LOOK_S)
                if not reading.done():
                    continue
                if reading.cancelled():
                    return  # the connection was closed, as those to earlier masters are
                data, reading = reading.result(), None
                if data is aio.EOF:
                    return
                command = v2.TelemetryCommand.FromString(data)
                if command.HasField("recover_orphaned_transaction_command"):
                    session.waiting.append(command)
        finally:
            if reading is not None:
                reading.cancel()
            stream.cancel()
