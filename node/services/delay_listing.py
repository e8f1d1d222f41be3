"""The messages that wait for their time, page by page, as the fold knows them and the log has them.

    page      ""  or  "<due ms>:<log offset>" of the last row before
    rows      by due time, then in log order; only topics that the caller may see

A page reads the records of LOOKED_UP rows at most, whether they are of the topic that was asked for
or not: it may be short, or empty, and another one follows as long as `next_page` is not empty.
"""

import re
from typing import Final

from tandemlog.format.constants import REAL_QUEUE_ID, REAL_TOPIC
from tandemlog.format.delay.handle import handle_of
from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import admin_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ..access.caller import Caller
from ..pulls.dispatch_wait import DispatchWait
from ..pulls.known_queues import KnownQueues
from ..pulls.pages import bad_page
from ..pulls.read_turns import ReadTurns

LOOKED_UP: Final = 1_000
ROWS_BYTES: Final = 1 << 20
_PAGE: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
_BEFORE_ALL: Final = (-(1 << 62), -1)


class DelayListing:
    """See the module."""

    def __init__(self, store: MessageStore, turns: ReadTurns) -> None:
        self._store = store
        self._turns = turns
        self._dispatch = DispatchWait(store)

    async def list(
        self, request: admin_pb2.ListDelayedRequest, caller: Caller
    ) -> admin_pb2.ListDelayedResponse:
        """One page. Raises RequestRefusedError."""
        await self._dispatch.confirmed()
        return await self._turns.run(
            caller,
            lambda: self._page(request, caller),
            room=ROWS_BYTES,
            size_of=lambda answer: answer.ByteSize(),
        )

    def _page(
        self, request: admin_pb2.ListDelayedRequest, caller: Caller
    ) -> admin_pb2.ListDelayedResponse:
        fold = self._store.delays
        with fold.lock:
            found = fold.rows.page(_after(request.page), LOOKED_UP)
            response = admin_pb2.ListDelayedResponse(waiting=len(fold.rows))
        for offset, due_ms in zip(found.offsets.tolist(), found.due_ms.tolist(), strict=True):
            record = self._record(offset)
            topic = "" if record is None else record.properties.get(REAL_TOPIC, "")
            if record is None or (request.topic and topic != request.topic):
                continue
            if caller.restricted is None or caller.seen([topic]):
                response.messages.append(_row(record, topic, due_ms))
        if request.topic and not response.messages:
            self._check_topic(request.topic, caller)
        if len(found) == LOOKED_UP:
            response.next_page = f"{int(found.due_ms[-1])}:{int(found.offsets[-1])}"
        return response

    def _check_topic(self, topic: str, caller: Caller) -> None:
        """Raises RequestRefusedError for one that is not there, and that the caller could see."""
        known = KnownQueues(self._store.topics, self._store.queue_table)
        if caller.restricted is None or caller.seen([topic]):
            known.check_topic(topic)

    def _record(self, offset: int) -> Record | None:
        """None for one that cannot be read, or that came meanwhile and was deleted."""
        try:
            return decode_record(self._store.reader.record_at(offset), physical_offset=offset)
        except StoreError:
            return None


def _after(page: str) -> tuple[int, int]:
    if not page:
        return _BEFORE_ALL
    match = _PAGE.fullmatch(page)
    if match is None:
        raise bad_page(page)
    return int(match[1]), int(match[2])


def _row(record: Record, topic: str, due_ms: int) -> admin_pb2.DelayedMessage:
    queue_id = record.properties.get(REAL_QUEUE_ID, "")
    key = record.uniq_key or ""
    return admin_pb2.DelayedMessage(
        topic=topic,
        queue_id=int(queue_id) if queue_id.isdecimal() and len(queue_id) < 10 else -1,
        deliver_at_ms=due_ms,
        store_timestamp=record.store_timestamp,
        physical_offset=record.physical_offset,
        body_bytes=len(record.body),
        unique_key=key,
        recall_handle=handle_of(topic, due_ms, key, record.physical_offset).encode(),
    )
