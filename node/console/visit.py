"""One request to the console, whose caller is known, and whom it can ask."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from aiohttp import web

from tandemlog.errors import InvalidArgumentError

from ..access.identities import Identity
from .cluster_clients import Clients
from .sessions import Session

MAX_ROWS = 200
"""Of one page of a table."""

Json: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Callable[["Visit"], Awaitable[Json | web.StreamResponse]]


class Needs(Enum):
    """What a request must bring."""

    NOTHING = "nothing"
    """What a browser needs to log in, which says nothing of the cluster."""
    CALLER = "caller"
    CHANGE = "change"
    """Also [console] writes, the right to administer, the CSRF token and `confirm`."""
    SEND = "send"
    """As CHANGE, without the right to administer: the node looks whether the caller may write to
    the topic."""


class Place(Enum):
    """What an answer holds while it is not taken: see room.py."""

    ANSWER = "answer"
    WAIT = "wait"
    """It is small, and its question waits."""
    FILE = "file"
    """It is in memory anyway."""


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table of routes. `path` is that below /console, as aiohttp writes patterns.
    `page`: it is what people open, and a stranger logs in first. `not_audited`: fields of the body
    whose size alone is in the audit log, since they are what a message says."""

    method: str
    path: str
    needs: Needs
    answer: Answer
    page: bool = False
    not_audited: Sequence[str] = ()
    place: Place = Place.ANSWER
    most_body_bytes: int = 1 << 20


@dataclass(slots=True)
class Visit:
    """A request. `identity` is None where callers are not asked who they are; `body` is that of a
    POST."""

    request: web.Request
    session: Session
    identity: Identity | None
    clients: Clients
    body: Json

    @property
    def name(self) -> str:
        """Of the caller, as it is called now."""
        return self.session.name if self.identity is None else self.identity.name

    @property
    def admin(self) -> bool:
        """Whether the caller may administer."""
        return self.identity is None or self.identity.admin

    def may_see(self, topic: str) -> bool:
        """Whether the caller may know that there is such a topic. What is asked by `clients` is
        decided there; what is read from the node's memory is to be decided by this."""
        return self.identity is None or self.identity.may_see(topic)

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query.get(name, default)

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
        """A whole number of the address. Raises InvalidArgumentError."""
        return whole(name, self.request.query.get(name), default, least, most)

    def part(self, name: str) -> str:
        """The value of {name} in the path."""
        return self.request.match_info[name]

    def given(self, name: str) -> str:
        """A text of the body. Raises InvalidArgumentError if it is missing."""
        value = self.body.get(name)
        if not isinstance(value, str):
            raise InvalidArgumentError(f"{name}: give a text", field=name)
        return value

    def given_number(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = 1 << 62
    ) -> int:
        """A whole number of the body. Raises InvalidArgumentError."""
        value = self.body.get(name, default)
        number = isinstance(value, int) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            text = f"{name}: give a whole number in {least}..{most}"
            raise InvalidArgumentError(text, field=name)
        return int(value)

    def confirmed(self, name: str) -> None:
        """Raises InvalidArgumentError unless the body confirms a change of `name`."""
        if self.body.get("confirm") != name:
            raise InvalidArgumentError(
                f"confirm: repeat the name of what is changed, {name!r}", field="confirm"
            )


def whole(name: str, value: str | None, default: int, least: int, most: int) -> int:
    """Raises InvalidArgumentError."""
    if value is None or not value:
        return default
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise InvalidArgumentError(f"{name}: {value[:40]!r} is not a whole number", field=name)
    number = int(value)
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}: {number} is not in {least}..{most}", field=name)
    return number


def body_of(data: bytes) -> Json:
    """The JSON object in the body of a POST. Raises InvalidArgumentError."""
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the body is not JSON: {error}", field="body") from None
    if not isinstance(found, dict):
        raise InvalidArgumentError("the body is not a JSON object", field="body")
    return found
