"""Requests 12 and 33: messages by key, by unique id, and by their position in the log.

A client asks each broker name of a route for a key, and puts the answers together. In a cluster
each slave has a name there (rocketmq/clients/routes.py), and has what the master has: so a slave
says that it has nothing, and leaves the answer to the master, if clients reach one.

A position is looked up by any node. The index knows hashes; the store compares the keys of the
records that it returns, so there is nothing that only has the same hash. At a position that a
client names there may be the middle of a record: what is returned begins with a head that names
this very position, and its checksum is right. A sender can make a body that has such a head in it,
so a caller that may not read everything gets only what a queue points to.
"""

from collections.abc import Mapping
from functools import partial

from tandemlog.format.record.record import decode_record
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.query_requests import (
    KeyQuery,
    index_fields,
    read_key_query,
    read_position,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import OffsetOutOfRangeError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import FoundRecords, NoRecordError

from ...access.caller import Caller
from ...access.identities import Right
from ...pulls.dispatch_wait import DispatchWait
from ...pulls.known_queues import KnownQueues
from ...pulls.read_turns import ReadTurns
from ...services.broker_service import MAX_LOOKED_UP, RECORDS_BYTES
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from .pull_methods import Readers
from .read_rights import RETRY


class QueryMethods:
    """See the module."""

    def __init__(
        self,
        store: MessageStore,
        known: KnownQueues,
        turns: ReadTurns,
        dispatch: DispatchWait,
        readers: Readers,
    ) -> None:
        self._store = store
        self._known = known
        self._turns = turns
        self._dispatch = dispatch
        self._readers = readers

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.QUERY_MESSAGE: Method(self.by_key, of_master=False),
            RequestCode.VIEW_MESSAGE_BY_ID: Method(self.by_position, of_master=False),
        }

    async def by_key(self, call: RemotingCall) -> Command:
        """Raw records end to end, the newest that fit, in the order of the log."""
        asked = read_key_query(call.request.fields)
        _require_read(call.caller, asked.topic)
        self._known.check_topic(asked.topic)
        if self._readers.another_leads():
            return call.request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="the master answers queries by key, so that no message comes twice",
                fields=index_fields(0, 0),
            )
        await self._dispatch.confirmed()
        found = await self._turns.run(
            call.caller,
            partial(self._query, asked),
            room=RECORDS_BYTES,
            size_of=lambda found: sum(map(len, found.records)),
        )
        newest = self._store.index.newest if self._store.index is not None else None
        header = None if newest is None else newest.header
        fields = index_fields(
            0 if header is None else header.end_timestamp,
            0 if header is None else header.end_physical_offset,
        )
        if not found.records:
            return call.request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="no message of this topic and time has the key",
                fields=fields,
            )
        return call.request.response(b"".join(found.records), fields=fields)

    def _query(self, asked: KeyQuery) -> FoundRecords:
        return self._store.reader.query_key(
            asked.topic,
            asked.key,
            max_messages=asked.max_messages,
            max_bytes=RECORDS_BYTES,
            begin_timestamp=asked.begin_timestamp,
            end_timestamp=asked.end_timestamp,
            max_looked_up=MAX_LOOKED_UP,
            tags=asked.tags,
        )

    async def by_position(self, call: RemotingCall) -> Command:
        """The record that begins there. Raises RemotingRefusedError, DeniedError."""
        position = read_position(call.request.fields)
        reader, reads_all = self._store.reader, call.caller.reads_all()
        if not reads_all:
            await self._dispatch.confirmed()
        try:
            record = await self._turns.run(
                call.caller,
                partial(reader.record_at if reads_all else reader.message_at, position),
                room=RECORDS_BYTES,
                size_of=len,
            )
        except (OffsetOutOfRangeError, NoRecordError) as problem:
            raise RemotingRefusedError(ResponseCode.SYSTEM_ERROR, str(problem)) from problem
        if call.caller.restricted is not None:
            _require_read(call.caller, decode_record(record).topic)
        return call.request.response(record)


def _require_read(caller: Caller, topic: str) -> None:
    """Of what is retried for a group its consumers are the readers. Raises DeniedError."""
    if caller.restricted is None:
        return
    if topic.startswith(RETRY):
        caller.require(Right.CONSUME, (topic.removeprefix(RETRY),))
    else:
        caller.require(Right.READ, (topic,))
