"""A request to store messages, from its append to its answer, without a task and a future.

    begin ─▶ JointSends ─▶ the log ─▶ confirmed ─▶ answer_with ─▶ respond ─▶ ended ─▶ the client
                │ not now: parked        │ refused ─▶ refuse ──────────────────┘
                └ the client is gone ────▶ ended, with no response; nothing is stored

Its bytes count for its caller from the beginning to the end.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tandemlog_server.rocketmq.clients.stored_message import StoredMessage
from tandemlog_server.rocketmq.wire.remoting import Command

from ...puts.joint_put import Send, Stored
from ..door.remoting_call import Ended, RemotingCall

Respond: TypeAlias = Callable[["OpenSend", Stored], Command | None]
"""The response to a send that is stored, None to one that waits for none."""


class OpenSend(Send):
    """See the module. `message` is the last one of a batch; `queue_id` where the records go,
    `asked_queue_id` what the client hears. `key` is the UNIQ_KEY that it sent."""

    __slots__ = ("_ended", "_respond", "asked_queue_id", "call", "key", "message")

    def __init__(
        self,
        call: RemotingCall,
        message: StoredMessage,
        records: Sequence[bytes],
        respond: Respond,
        *,
        received_at: float,
        asked_queue_id: int,
        key: str,
        durability: int,
        share: str,
    ) -> None:
        super().__init__(
            message.topic, message.queue_id, records, call.caller, received_at, durability, share
        )
        self.call = call
        self.message = message
        self.asked_queue_id = asked_queue_id
        self.key = key
        self._respond = respond
        self._ended: Ended | None = None

    def begin(self, ended: Ended) -> None:
        """It is to be appended now; `ended` is called once, unless `give_up` is."""
        self._ended = ended
        self.caller.hold(self.byte_size)

    def give_up(self) -> None:
        """No one waits for it any more."""
        self._end()

    def answer_with(self, stored: Stored) -> None:
        if (ended := self._end()) is None:
            return
        try:
            response = self._respond(self, stored)
        except Exception as problem:
            ended(self.call, None, problem)
        else:
            ended(self.call, response, None)

    def refuse(self, problem: Exception) -> None:
        if (ended := self._end()) is not None:
            ended(self.call, None, problem)

    def is_unwanted(self) -> bool:
        call = self.call
        if self._ended is None:
            return True
        if not call.connection.closed or call.request.is_oneway:
            return False
        if (ended := self._end()) is not None:
            ended(call, None, None)
        return True

    def _end(self) -> Ended | None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self.caller.hold(-self.byte_size)
        return ended
