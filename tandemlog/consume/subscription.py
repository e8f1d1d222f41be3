"""Which topics a stream follows: names, patterns, or both.

    "orders"                        this topic; it must exist
    re.compile(r"orders-.*")        every topic whose whole name matches, now and later
    "^orders-.*"                    the same, as Kafka writes it: no topic's name has a "^"

Topics that RocketMQ keeps for itself match no pattern.
"""

import re
from collections.abc import Sequence

from ..errors import InvalidArgumentError
from ..format.constants import is_system_topic
from ..v1 import admin_pb2
from .reading.positions import Positions

Topics = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""A topic or a pattern, or several of them."""


class Subscription:
    """See the module; raises InvalidArgumentError for an invalid pattern."""

    def __init__(self, positions: Positions, topics: Topics) -> None:
        self._positions = positions
        wanted = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
        self.names = tuple(
            dict.fromkeys(
                each for each in wanted if isinstance(each, str) and not each.startswith("^")
            )
        )
        self.patterns = tuple(
            _pattern(each)
            for each in wanted
            if isinstance(each, re.Pattern) or each.startswith("^")
        )

    async def topics(self) -> list[admin_pb2.Topic]:
        """The present topics; raises UnknownTopicError for a name without one."""
        by_name = {}
        if self.patterns:
            for topic in await self._positions.topics(()):
                if not is_system_topic(topic.name) and self._matches(topic.name):
                    by_name[topic.name] = topic
        if self.names:
            for topic in await self._positions.topics(self.names):
                by_name[topic.name] = topic
        return [by_name[name] for name in sorted(by_name)]

    def _matches(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self.patterns)


def _pattern(text: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgumentError(
            f"the pattern {text!r} for topics is not a regular expression: {error}", field="topics"
        ) from error
