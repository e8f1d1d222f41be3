"""Replies (324, 325): to the client that has asked, over its own connection, and into the log.

    325 ──▶ its topic, rights ──▶ 326 to the client named in REPLY_TO_CLIENT, which answers it
                              ──▶ stored, as a broker does (storeReplyMessageEnable)

The answer says whether the reply has reached the client. It may say so although the store has
refused the reply, and the other way round: a reply that came too late is stored all the same.

A client sends heartbeats to every node that a route names, so each node knows the clients by their
connections to it. The master serves this: a slave hands a reply on, and so the client is looked for
on one node, which all clients of the cluster are connected to. For a moment after an election some
may not be: SYSTEM_ERROR makes the sender try again.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.reply_messages import (
    REPLY_TO_CLIENT,
    as_send,
    push_fields,
)
from tandemlog_server.rocketmq.clients.send_requests import SendRequest, read_send
from tandemlog_server.rocketmq.clients.stored_properties import read_properties
from tandemlog_server.rocketmq.wire.remoting import SUCCESS, Command
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ...error_status import RequestRefusedError
from ..door.remoting_call import Connection, Method, RemotingCall, RemotingRefusedError
from .born_host import born_host_of
from .send_methods import SendMethods

logger = logging.getLogger(__name__)

PUSH_S: Final = 2.0
"""For the answer of the client; who has sent the reply waits 3 s by default."""


class ConnectedClient(Protocol):
    @property
    def connection(self) -> Connection: ...


ClientOf = Callable[[str], ConnectedClient | None]
"""The client with this id, if it is connected here."""


class ReplyMethods:
    """See the module; belongs to the loop."""

    def __init__(self, store: MessageStore, sends: SendMethods, client_of: ClientOf) -> None:
        self._store = store
        self._sends = sends
        self._client_of = client_of

    def methods(self) -> dict[int, Method]:
        """By request code."""
        method = Method(self.reply)
        return {
            RequestCode.SEND_REPLY_MESSAGE: method,
            RequestCode.SEND_REPLY_MESSAGE_V2: method,
        }

    async def reply(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError, DeniedError and RequestRefusedError for a reply that is not
        looked at."""
        send = as_send(call.request)
        try:
            request = read_send(send)
        except FormatError as error:
            raise RemotingRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        queue_id = await self._sends.place(call, request)
        fault = await self._push(call, request._replace(queue_id=queue_id))
        try:
            stored = await self._sends.send_as_it_is(call, request, queue_id)
        except (RequestRefusedError, RemotingRefusedError, StoreError) as error:
            logger.debug("a reply to %s is not stored: %s", quoted(request.topic), error)
            stored = None
        if call.request.is_oneway:
            return None
        # a client cannot read an answer without these
        fields = {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        if stored is not None:
            fields |= stored.fields
        code = ResponseCode.SYSTEM_ERROR if fault else ResponseCode.SUCCESS
        return call.request.response(code=code, remark=fault, fields=fields)

    async def _push(self, call: RemotingCall, request: SendRequest) -> str:
        """Give the reply to its client; returns why that has failed, empty if it has not."""
        client_id = read_properties(request.properties).get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        client = self._client_of(client_id)
        name = quoted(client_id)
        if client is None or client.connection.closed:
            return f"push reply message fail, channel of <{name}> not found: it is not connected"
        fields = push_fields(
            request,
            born_host=born_host_of(call.connection.peer),
            store_host=self._store.config.store_host,
            now_ms=self._store.clock.now_ms(),
            facts=self._sends.broker_facts,
        )
        try:
            answer = await client.connection.ask(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body, timeout_s=PUSH_S
            )
        except (ConnectionError, TimeoutError) as error:
            return f"push reply message to {name} fail: {error}"
        if answer.code != SUCCESS:
            return f"push reply message to {name} fail: it answered {answer.code} {answer.remark}"
        return ""
