"""What the table of producers says of a request, and of a producer."""

from dataclasses import dataclass
from typing import TypeAlias

from .producer_requests import Extent


@dataclass(frozen=True, slots=True)
class New:
    """A request that was not stored: append all of it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The first `have` records are stored, the rest is not: append it behind a mark with that
    index."""

    have: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Stored before. Where, unless it is too long ago: `extents` is empty then; `end_offset` is
    the position to be confirmed before the request is answered, 0 for long ago."""

    extents: tuple[Extent, ...] = ()
    end_offset: int = 0
    store_timestamp: int = 0


Outcome: TypeAlias = New | Resume | Duplicate


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The last request of a producer; `timestamp` is its store time in ms."""

    epoch: int
    last_sequence: int
    timestamp: int
