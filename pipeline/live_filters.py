"""Which of a query's filters the cluster can apply, and what they leave to be read.

    topic = .. , in        \\
    queue_id = .. , in      } fewer queues
    queue_offset < <= = >= >  shorter spans
    tags = .. , in            the nodes leave other messages out, the tasks look again exactly

All of these are exact, so Spark need not look again. Deterministic and without I/O: Spark may ask
more than once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tandemlog.format.errors import FormatError
from tandemlog.format.tags import parse_tags

from .offsets import Span

_NO_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left to read: of these topics and queues (None: all), offsets start .. end-1, these
    tags ("a || b", None: as the options say)."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    start: int = 0
    end: int = _NO_END
    tags: str | None = None

    def of(self, spans: Iterable[Span]) -> list[Span]:
        narrowed = []
        for span in spans:
            if self.topics is not None and span.topic not in self.topics:
                continue
            if self.queues is not None and span.queue_id not in self.queues:
                continue
            start, end = max(span.start, self.start), min(span.end, self.end)
            if start < end:
                narrowed.append(replace(span, start=start, end=end))
        return narrowed


def narrow(filters: Sequence[Filter], tags: str | None) -> tuple[Narrowing, list[Filter]]:
    """What the filters leave, and those that Spark has to apply itself. `tags` is the option: a
    read that has one is not narrowed by tags again."""
    narrowing = Narrowing()
    rest = []
    for each in filters:
        further = _applied(narrowing, each, tags)
        if further is None:
            rest.append(each)
        else:
            narrowing = further
    return narrowing, rest


def _applied(narrowing: Narrowing, condition: Filter, tags: str | None) -> Narrowing | None:
    attribute = getattr(condition, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    values = _values(condition)
    name = attribute[0]
    if name == "queue_offset":
        return _offsets(narrowing, condition)
    if values is None:
        return None
    if name == "topic":
        return replace(narrowing, topics=_both(narrowing.topics, frozenset(map(str, values))))
    if name == "queue_id":
        return replace(narrowing, queues=_both(narrowing.queues, frozenset(map(int, values))))
    if name == "tags" and tags is None and narrowing.tags is None and _are_tags(values):
        return replace(narrowing, tags=" || ".join(values))
    return None


def _values(condition: Filter) -> tuple[Any, ...] | None:
    """Those that the column may have; None for another kind of filter."""
    if isinstance(condition, EqualTo):
        values: tuple[Any, ...] = (condition.value,)
    elif isinstance(condition, In):
        values = tuple(condition.value)
    else:
        return None
    return None if None in values else values


def _both(before: frozenset[Any] | None, now: frozenset[Any]) -> frozenset[Any]:
    return now if before is None else before & now


def _are_tags(values: Sequence[str]) -> bool:
    """Whether an expression can say them: no separator in them, no blank around them, no quotes."""
    try:
        return parse_tags(" || ".join(values)) == frozenset(values)
    except FormatError:
        return False


def _offsets(narrowing: Narrowing, condition: Filter) -> Narrowing | None:
    value = getattr(condition, "value", None)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        start = value + isinstance(condition, GreaterThan)
        return replace(narrowing, start=max(narrowing.start, start))
    if isinstance(condition, LessThan | LessThanOrEqual):
        end = value + isinstance(condition, LessThanOrEqual)
        return replace(narrowing, end=min(narrowing.end, end))
    if isinstance(condition, EqualTo):
        return replace(
            narrowing, start=max(narrowing.start, value), end=min(narrowing.end, value + 1)
        )
    return None
