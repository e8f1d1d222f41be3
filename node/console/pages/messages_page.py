"""Messages: browse a topic, find one by time, key, id or filter, look at one, send one.

    browse   places in some queues ──▶ walk.py ──▶ a page, and the places at its two ends
    find     key, tag, unique id, offset id ──▶ the store's index
    one      topic, queue, offset ──▶ fields, body, its life (message_life.py)
    send     ──▶ a producer of the caller's

All of it is asked as the caller. Of a topic with many queues those that were written to last are
read together; a person chooses another one by its number.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from aiohttp import web

from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.reading.positions import QueueRange
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.errors import BadRecordError, InvalidArgumentError, UnknownQueueError
from tandemlog.format.errors import FormatError
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions

from ..answers import download, fault
from ..message_life import MessageLife
from ..served_node import ServedNode
from ..shown_message import body_of, details_of, row_of
from ..visit import MAX_ROWS, Answer, Json, Needs, Route, Visit
from ..walk import Page, Walk

ROWS = 50
TOGETHER = 32
"""Queues of a topic that are read together."""
FOUND = 32
WHOLE_AT_ONCE = 2
"""Requests, of all sessions, that hold whole messages: each may hold FOUND of the largest, or a
body that becomes 64 MB. The others wait their turn."""
TOPIC_NAMES = 50
SOON_MS = 300
"""A message that was acknowledged just now may not be in its queue yet."""
GONE = "there is no message at this offset: it was deleted, or is not there yet"


class MessagesPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._whole = asyncio.Semaphore(WHOLE_AT_ONCE)

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/messages", Needs.CALLER, self._browse),
            Route("GET", "/api/messages/topics", Needs.CALLER, self._topics),
            Route("GET", "/api/messages/find", Needs.CALLER, self._find),
            Route("GET", "/api/messages/message", Needs.CALLER, self._in_turn(self._message)),
            Route("GET", "/api/messages/life", Needs.CALLER, self._in_turn(self._life)),
            Route("GET", "/api/messages/body", Needs.CALLER, self._in_turn(self._body)),
            Route(
                "POST",
                "/api/messages/send",
                Needs.SEND,
                self._send,
                not_audited=("body", "properties", "keys", "tags", "key", "tag"),
            ),
        )

    # ---- many

    async def _topics(self, visit: Visit) -> Json:
        """Names that begin with, and then names that have, the text `like`."""
        like = visit.text("like").lower()
        async with visit.clients.admin() as admin:
            names = [each.name for each in await admin.topics()]
        fitting = [name for name in names if like in name.lower()]
        fitting.sort(key=lambda name: (not name.lower().startswith(like), name))
        return {"topics": fitting[:TOPIC_NAMES], "more": len(fitting) > TOPIC_NAMES}

    async def _browse(self, visit: Visit) -> Json:
        topic, back = _topic(visit), _back(visit)
        queue_id = visit.number("queue", -1)
        count = visit.number("count", ROWS, least=1, most=MAX_ROWS)
        async with visit.clients.admin() as admin:
            queues = (await admin.topic(topic)).read_queues
            if queue_id >= queues:
                raise UnknownQueueError(
                    f"topic {topic!r} has the queues 0..{queues - 1}, not {queue_id}",
                    field="queue",
                )
            held = {each.queue_id: each for each in await admin.ranges([topic])}
            at = _places(visit.text("at"))
            chosen = _chosen(held, at, queue_id)
            places = at or await self._begin(visit, admin, topic, chosen, back=back)
        async with self._consumer(visit) as consumer:
            walk = Walk(
                consumer, topic, places, chosen, back=back,
                where=visit.text("where").strip(), tags=visit.text("tags").strip(),
            )  # fmt: skip
            page = await walk.page(count)
        return {**_page(page), "topic": topic, "queues": queues, **_queues(held, chosen)}

    async def _begin(
        self,
        visit: Visit,
        admin: AsyncAdmin,
        topic: str,
        chosen: Mapping[int, QueueRange],
        *,
        back: bool,
    ) -> Mapping[int, int]:
        """Where the first page begins: at an offset, at a time, or at the end of the queues. What
        is asked for is on the page: back from offset 7 begins behind 7."""
        if visit.text("offset"):
            if len(chosen) > 1:
                raise InvalidArgumentError("offset: it counts in one queue, give it", field="queue")
            offset = visit.number("offset", 0)
            return dict.fromkeys(chosen, offset + 1 if back else offset)
        if visit.text("time"):
            ms = visit.number("time", 0)
            found = {
                queue_id: (await admin.search_offset(topic, ms + back, queue_id=queue_id))[
                    topic, queue_id
                ]
                for queue_id in chosen
            }
            return found
        return {
            queue_id: each.max_offset if back else each.min_offset
            for queue_id, each in chosen.items()
        }

    async def _find(self, visit: Visit) -> Json:
        """Exactly one of key, tag and id."""
        asked = [name for name in ("key", "tag", "id") if visit.text(name)]
        if len(asked) != 1:
            raise InvalidArgumentError("give one of key, tag and id", field="key")
        [name] = asked
        text, topic = visit.text(name), visit.text("topic")
        if name != "id":
            topic = _topic(visit)
        async with self._whole, visit.clients.admin() as admin:
            if name == "id":
                message = await admin.query_by_id(text.strip(), topic or None)
                messages = [] if message is None else [message]
            else:
                messages = await admin.query_by_key(
                    topic,
                    text,
                    max_messages=FOUND + 1,
                    begin=visit.number("begin", 0),
                    end=visit.number("end", 0),
                    tags=name == "tag",
                )
            newest, more = messages[-FOUND:], len(messages) > FOUND
            rows = await asyncio.to_thread(lambda: [row_of(each) for each in reversed(newest)])
        return {"rows": rows, "more": more}

    # ---- one

    def _in_turn(self, answer: Answer) -> Answer:
        async def answered(visit: Visit) -> Json | web.StreamResponse:
            async with self._whole:
                return await answer(visit)

        return answered

    async def _message(self, visit: Visit) -> Json | web.Response:
        message = await self._read(visit)
        if message is None:
            return fault(404, GONE, "NotFound")
        log = self._node.store.log
        at, size = message.physical_offset, log.file_size
        place = {
            "file": f"{at // size * size:020d}",
            "position": at % size,
            "file_size": size,
            "on_this_disk": at >= log.min_offset,
            "node": self._node.config.node_id,
        }
        found = {"place": place, "queue_id": message.queue_id, "size": message.size}
        try:
            body = await asyncio.to_thread(body_of, message)
            return {**found, **details_of(message), "body": body}
        except BadRecordError as error:
            return {**found, "fault": str(error), "physical_offset": at}

    async def _life(self, visit: Visit) -> Json | web.Response:
        message = await self._read(visit)
        if message is None:
            return fault(404, GONE, "NotFound")
        return await MessageLife(self._node, visit, message).told()

    async def _body(self, visit: Visit) -> web.Response:
        message = await self._read(visit)
        if message is None:
            return fault(404, GONE, "NotFound")
        try:
            body = await asyncio.to_thread(lambda: message.body)
        except FormatError as error:
            return fault(409, f"{error}: its bytes are read by `tandemlog dump`", "FormatError")
        name = f"{message.topic}-{message.queue_id}-{message.queue_offset}.bin"
        return download(body, name.replace("%", "_").replace("|", "_"))

    async def _read(self, visit: Visit) -> ReceivedMessage | None:
        """The message that the address names."""
        topic, queue_id = _topic(visit), visit.number("queue", 0, most=(1 << 31) - 1)
        offset = visit.number("offset", 0)
        async with self._consumer(visit) as consumer:
            batch = await consumer.pull(topic, queue_id, offset, max_messages=1, wait_ms=SOON_MS)
        return batch[0] if len(batch) and batch[0].queue_offset == offset else None

    def _consumer(self, visit: Visit) -> AsyncConsumer:
        return AsyncConsumer(visit.clients.endpoint, connection=visit.clients.options)

    # ---- send

    async def _send(self, visit: Visit) -> Json:
        """The node decides whether the caller may write to the topic."""
        topic = visit.given("topic")
        visit.confirmed(topic)
        delay_ms = visit.given_number("delay_ms", 0)
        message = Message(
            topic,
            _bytes(visit),
            keys=visit.given("keys").split(),
            tags=visit.given("tags"),
            properties=_properties(visit),
            queue_id=None if visit.body.get("queue") is None else visit.given_number("queue"),
        )
        options = ProducerOptions(
            linger_ms=0, delivery_timeout_ms=10_000, idempotent=False,
            connection=visit.clients.options,
        )  # fmt: skip
        async with AsyncProducer(visit.clients.endpoint, options) as producer:
            delay = timedelta(milliseconds=delay_ms) if delay_ms else None
            result = await (await producer.send(message, delay=delay))
        return {
            "topic": result.topic,
            "queue_id": result.queue_id,
            "queue_offset": result.queue_offset,
            "physical_offset": result.physical_offset,
            "store_timestamp": result.store_timestamp,
            "deliver_at_ms": result.deliver_at_ms,
            "msg_id": result.msg_id,
        }


def _topic(visit: Visit) -> str:
    topic = visit.text("topic")
    if not topic:
        raise InvalidArgumentError("topic: give the name of a topic", field="topic")
    return topic


def _back(visit: Visit) -> bool:
    direction = visit.text("direction", "back")
    if direction not in ("back", "forward"):
        raise InvalidArgumentError("direction: back or forward", field="direction")
    return direction == "back"


def _places(text: str) -> Mapping[int, int]:
    """Of `queue:offset,queue:offset`, as a page gives them. Raises InvalidArgumentError."""
    places: dict[int, int] = {}
    for each in text.split(",") if text else ():
        queue_id, _, offset = each.partition(":")
        for number in (queue_id, offset):
            if not (number.isascii() and number.isdigit()) or len(number) > 18:
                raise InvalidArgumentError(f"at: {each[:40]!r} is no queue:offset", field="at")
        places[int(queue_id)] = int(offset)
    return places


def _chosen(
    held: Mapping[int, QueueRange], at: Mapping[int, int], queue_id: int
) -> Mapping[int, QueueRange]:
    """What is read: the queues of the page before, the one that is asked for, or those that were
    written to last."""
    if at:
        return {each: held[each] for each in list(at)[:TOGETHER] if each in held}
    if queue_id >= 0:
        return {queue_id: held[queue_id]} if queue_id in held else {}
    newest = sorted(held.values(), key=lambda each: each.max_timestamp, reverse=True)
    return {each.queue_id: each for each in newest[:TOGETHER]}


def _queues(held: Mapping[int, QueueRange], chosen: Mapping[int, QueueRange]) -> Json:
    return {
        "queues_with_messages": len(held),
        "read": [
            {
                "queue_id": each.queue_id,
                "min_offset": each.min_offset,
                "max_offset": each.max_offset,
                "min_timestamp": each.min_timestamp,
                "max_timestamp": each.max_timestamp,
            }
            for each in sorted(chosen.values(), key=lambda each: each.queue_id)
        ],
    }


def _page(page: Page) -> dict[str, Any]:
    def text(places: Mapping[int, int]) -> str:
        return ",".join(f"{queue_id}:{offset}" for queue_id, offset in places.items())

    return {
        "rows": page.rows,
        "older": text(page.before),
        "newer": text(page.behind),
        "looked_at": page.looked_at,
        "ended": page.ended,
    }


def _bytes(visit: Visit) -> bytes:
    text = visit.given("body")
    if visit.body.get("encoding", "text") == "text":
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError("body: it is not valid Unicode text", field="body") from None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"body: not base64: {error}", field="body") from None


def _properties(visit: Visit) -> dict[str, str]:
    found = visit.body.get("properties", {})
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidArgumentError(
            "properties: give an object whose values are texts", field="properties"
        )
    return found
