"""Which queue a message goes to.

queue_id given  →  that queue
sharding key    →  |java hash| mod queues, as RocketMQ's SelectMessageQueueByHash does it:
                   equal keys in one queue, in order, whichever client sends them
neither         →  round robin, another queue every SPREAD_BYTES: a request carries records of any
                   queues for nothing, so that a few thousand short messages give work to
                   all members of a group, and not to one
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache

from ..cluster.unknown_topics import unknown_topics
from ..errors import (
    InvalidMessageError,
    PermissionDeniedError,
    TandemlogError,
    TopicNotWritableError,
    UnknownQueueError,
    UnknownTopicError,
)
from ..format.constants import PERM_WRITE
from ..format.java_hash import java_hash
from ..v1 import admin_pb2
from .framing import check_topic

logger = logging.getLogger(__name__)

SPREAD_BYTES = 16 << 10
"""As Kafka's producer."""

_hash_of = lru_cache(maxsize=1 << 16)(java_hash)


class Route:
    """A topic's queues for a producer; `empty_size` are the bytes of a record of this topic that
    has neither a body nor properties of the user."""

    __slots__ = ("_generation", "_next", "empty_size", "queues", "topic")

    def __init__(self, topic: str, queues: int, first: int, empty_size: int = 0) -> None:
        self.topic = topic
        self.queues = queues
        self.empty_size = empty_size
        self._next = first % queues
        self._generation = -1

    def queue_for(self, queue_id: int | None, sharding_key: str | None, generation: int) -> int:
        """The queue; `generation` is another number for each SPREAD_BYTES."""
        if queue_id is not None:
            if not 0 <= queue_id < self.queues:
                raise unknown_queue(self.topic, queue_id, self.queues)
            return queue_id
        if sharding_key is not None:
            return shard(sharding_key, self.queues)
        if generation != self._generation:
            self._generation = generation
            self._next = (self._next + 1) % self.queues
        return self._next

    def first_of(self, count: int, generation: int) -> int:
        """The first of `count` queues in turn, which are the caller's."""
        first = self.queue_for(None, None, generation)
        self._next = (first + count - 1) % self.queues
        return first


def shard(key: str, queues: int) -> int:
    """The queue of a sharding key."""
    if not key:
        raise InvalidMessageError("an empty sharding_key", field="sharding_key")
    return abs(_hash_of(key)) % queues


def unknown_queue(topic: str, queue_id: int, queues: int, index: int = -1) -> UnknownQueueError:
    return UnknownQueueError(
        f"topic {topic!r} has the queues 0..{queues - 1}, not {queue_id}",
        field="queue_id",
        limit=queues,
        actual=queue_id,
        record_index=index,
    )


class RouteTable:
    """The routes of the topics a producer sends to: asked for once, and again at intervals, since
    a topic may get more queues; also before a queue is refused, which may have come since. `fetch`
    asks the master for topics by name, `empty_size` gives that
    of a Route."""

    def __init__(
        self,
        fetch: Callable[[Sequence[str]], Awaitable[list[admin_pb2.Topic]]],
        empty_size: Callable[[str], int],
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._fetch = fetch
        self._empty_size = empty_size
        self._pick = pick
        self._routes: dict[str, Route] = {}

    def get(self, topic: str) -> Route | None:
        """The route if it is known. Any thread."""
        return self._routes.get(topic)

    def forget(self, topics: Sequence[str]) -> None:
        """The next send to one of `topics` asks again."""
        for topic in topics:
            self._routes.pop(topic, None)

    async def refresh(self) -> None:
        """Asks for every known topic again; what cannot be asked now stays as it is."""
        before = dict(self._routes)
        try:
            found = await self._found([*before]) if before else {}
        except TandemlogError as error:
            logger.debug("routes not refreshed: %s", error)
            return
        for topic, route in before.items():
            try:
                await self._load(topic, found, route)
            except TandemlogError as error:
                logger.debug("route not refreshed: topic=%s %s", topic, error)

    async def load_all(self, topics: Sequence[str]) -> None:
        """As `load` of each of them, with few requests for thousands."""
        for topic in topics:
            check_topic(topic)
        before = {topic: self._routes.get(topic) for topic in topics}
        found = await self._found(topics) if len(topics) > 1 else {}
        for topic, route in before.items():
            await self._load(topic, found, route)

    async def _found(self, topics: Sequence[str]) -> dict[str, admin_pb2.Topic]:
        """Topics by name; none where the master refuses the request for one of them, which it need
        not name: each is asked for by itself then."""
        try:
            return {each.name: each for each in await self._fetch(topics)}
        except (PermissionDeniedError, UnknownTopicError):
            return {}

    async def _load(
        self, topic: str, found: Mapping[str, admin_pb2.Topic], before: Route | None
    ) -> None:
        """A route that is not the one of `before` came while `found` was asked for, and is newer;
        one that is gone by now is asked for again by the next send."""
        if topic not in found:
            await self.load(topic)
        elif self._routes.get(topic) is before:
            self._take(found[topic])

    async def _names(self) -> list[str]:
        """Of all topics, to propose one; none if the master cannot be asked."""
        try:
            return [each.name for each in await self._fetch([])]
        except TandemlogError:
            return []

    async def load(self, topic: str) -> Route:
        """The route as the master knows it now; raises UnknownTopicError, TopicNotWritableError."""
        check_topic(topic)
        try:
            found = [each for each in await self._fetch([topic]) if each.name == topic]
            if not found:
                raise unknown_topics([topic])
        except UnknownTopicError:
            self._routes.pop(topic, None)
            raise unknown_topics([topic], await self._names()) from None
        return self._take(found[0])

    def _take(self, settings: admin_pb2.Topic) -> Route:
        topic, queues = settings.name, settings.write_queues
        if not settings.perm & PERM_WRITE or queues < 1:
            self._routes.pop(topic, None)
            raise TopicNotWritableError(
                f"topic {topic!r} takes no messages: permission {settings.perm}, "
                f"{queues} write queues",
                field="topic",
            )
        route = self._routes.get(topic)
        if route is None or route.queues != queues:
            route = self._routes[topic] = Route(
                topic, queues, self._pick(queues), self._empty_size(topic)
            )
        return route
