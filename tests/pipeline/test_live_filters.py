import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from pipeline.live_filters import narrow
from pipeline.offsets import Span

SPANS = [Span("a", 0, 0, 100), Span("a", 1, 0, 100), Span("b", 0, 50, 60)]


def left(*filters: Filter, tags: str | None = None) -> tuple[list[str], list[Filter]]:
    narrowing, rest = narrow(filters, tags)
    return [str(span) for span in narrowing.of(SPANS)], rest


@pytest.mark.parametrize(
    ("condition", "spans"),
    [
        (EqualTo(("topic",), "b"), ["b/0 50..60"]),
        (In(("topic",), ("b", "c")), ["b/0 50..60"]),
        (EqualTo(("queue_id",), 1), ["a/1 0..100"]),
        (GreaterThan(("queue_offset",), 55), ["a/0 56..100", "a/1 56..100", "b/0 56..60"]),
        (GreaterThanOrEqual(("queue_offset",), 99), ["a/0 99..100", "a/1 99..100"]),
        (LessThan(("queue_offset",), 2), ["a/0 0..2", "a/1 0..2"]),
        (LessThanOrEqual(("queue_offset",), 0), ["a/0 0..1", "a/1 0..1"]),
        (EqualTo(("queue_offset",), 51), ["a/0 51..52", "a/1 51..52", "b/0 51..52"]),
    ],
)
def test_filters_that_leave_less_to_read(condition: Filter, spans: list[str]) -> None:
    assert left(condition) == (spans, [])


def test_filters_hold_together() -> None:
    spans, _ = left(In(("topic",), ("a", "b")), EqualTo(("topic",), "a"), EqualTo(("queue_id",), 0))
    assert spans == ["a/0 0..100"]
    spans, _ = left(EqualTo(("topic",), "a"), EqualTo(("topic",), "b"))
    assert spans == []


def test_tags_are_asked_of_the_nodes() -> None:
    narrowing, rest = narrow([In(("tags",), ("x", "y"))], None)
    assert (narrowing.tags, rest) == ("x || y", [])


@pytest.mark.parametrize(
    ("condition", "tags"),
    [
        (EqualTo(("tags",), "a || b"), None),
        (EqualTo(("tags",), " a"), None),
        (EqualTo(("tags",), "*"), None),
        (EqualTo(("tags",), "'a'"), None),
        (EqualTo(("tags",), "a && b"), None),
        (In(("tags",), ()), None),
        (EqualTo(("tags",), "a"), "b"),
        (IsNotNull(("tags",)), None),
        (StringStartsWith(("topic",), "a"), None),
        (EqualTo(("properties", "x"), "a"), None),
        (EqualTo(("topic",), None), None),
        (EqualTo(("queue_offset",), 1.5), None),
    ],
)
def test_what_spark_has_to_do_itself(condition: Filter, tags: str | None) -> None:
    spans, rest = left(condition, tags=tags)
    assert rest == [condition]
    assert len(spans) == len(SPANS)
