"""The records of a batch (request 320), framed where they keep nothing else waiting.

    body ─▶ above store.max_message_size: refused
         ─▶ few messages, few bytes: framed at once, in the event loop
         ─▶ else: in a reader thread, at its sender's turn (read_turns.py)

As a broker does, the node takes no batch whose body is larger than a single message may be.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.batch_records import batch_records
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.clients.send_requests import SendRequest, has_more_messages
from tandemlog_server.rocketmq.clients.stored_message import StoredMessage

from ...access.caller import Caller
from ...pulls.read_turns import ReadTurns
from ..door.remoting_call import RemotingRefusedError

Made = TypeVar("Made")

FEW_BYTES: Final = 64 << 10
FEW_MESSAGES: Final = 256
FEW_PROPERTIES: Final = 4_096
"""Of all messages of a batch that is framed in the loop: a few milliseconds."""
_END: Final = b"\x02"
"""The byte behind a property."""


def is_large(body: bytes) -> bool:
    """Whether a thread is to frame this body of a batch."""
    return (
        len(body) > FEW_BYTES
        or has_more_messages(body, FEW_MESSAGES)
        or body.count(_END) > FEW_PROPERTIES
    )


class BatchFrames:
    """See the module. `most_bytes` of a body, and of one text in it."""

    def __init__(self, turns: ReadTurns, *, store_ipv6: bool, most_bytes: int) -> None:
        self._turns = turns
        self._store_ipv6 = store_ipv6
        self._most_bytes = most_bytes

    def frame(self, body: bytes, common: StoredMessage, born_host: str) -> list[bytes]:
        """A record for each message, with what all of them have in `common`, which it changes.
        Raises RemotingRefusedError (MESSAGE_ILLEGAL)."""
        try:
            if len(body) > self._most_bytes:
                raise FormatError(
                    f"the batch has {len(body)} bytes, the limit is {self._most_bytes} "
                    "(store.max_message_size): send it in parts"
                )
            return batch_records(
                body, common, born_host, store_ipv6=self._store_ipv6, most_bytes=self._most_bytes
            )
        except FormatError as error:
            raise RemotingRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None

    async def in_turn(self, caller: Caller, request: SendRequest, work: Callable[[], Made]) -> Made:
        """What `work` makes of a request, in a thread if that is a large batch. Raises what `work`
        raises, and RequestRefusedError (BUSY) if its caller has no turn in time."""
        body = request.body
        if not request.batch or len(body) > self._most_bytes or not is_large(body):
            return work()
        return await self._turns.run(caller, work)
