"""What is counted at each door of RocketMQ's clients, and where a scrape finds it.

    request ─▶ RequestCounts: by its name and by the result   ─┐
    clients, members, what is handed on: the door's own parts ─┴▶ DoorNumbers, read at a scrape

A name or result that another process could invent is counted as OTHER, so that the number of rows
is bounded by this program.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

OTHER: Final = "other"
RequestT = TypeVar("RequestT", bound=int | str)
"""How a door knows a kind of request: by a code, or by a name."""


@dataclass(frozen=True, slots=True)
class DoorNumbers:
    """Of one door at one moment. `clients` are producers and consumers that have said so; `members`
    by group; `parked` requests wait for a master; `handed_on` went to it, of which `repeated` a
    second time."""

    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    connections: int = 0
    clients: int = 0
    members: Mapping[str, int] = field(default_factory=dict)
    parked: int = 0
    handed_on: int = 0
    repeated: int = 0


class Doors(dict[str, Callable[[], DoorNumbers]]):
    """By the name that a door has in metrics."""


class RequestCounts(Generic[RequestT]):
    """See the module. `names` are the requests of the wire that are named, `results` the codes of
    answers."""

    def __init__(self, names: Mapping[RequestT, str], results: Mapping[int, str]) -> None:
        self._names = names
        self._results = results
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, request: RequestT, result: int) -> None:
        """One request was answered."""
        self._counts[self._names.get(request, OTHER), self._results.get(result, OTHER)] += 1

    def numbers(self) -> dict[tuple[str, str], int]:
        """(name, result) -> how many."""
        return dict(self._counts)
