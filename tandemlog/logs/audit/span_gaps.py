"""Checks neighbouring spans: is the end of each the beginning of the next.

    spans     |first ... end|first ... end|        end == first: nothing lies between them
                            |  ????  |first        a hole, or damage over the border

If they do not meet, no span recognised the bytes between them as records. Records after a BLANK in
the same file are left over from an earlier use of that file and do not count.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..reading.log_spans import Span
from ..reading.span_scan import Ending


class ScannedSpan(Protocol):
    """What a scan of a span came to; see SpanScan."""

    @property
    def span(self) -> Span: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def ending(self) -> Ending: ...


@dataclass(frozen=True, slots=True)
class Gap:
    """Log offsets start .. end that are in no record of any span."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StaleSpan:
    """A span whose records stand behind a BLANK."""

    start: int
    blank: int


def chain_faults(spans: Iterable[ScannedSpan], start: int, end: int) -> Iterator[Gap | StaleSpan]:
    """What is between start and end of a log and in no span, in order."""
    expected = start
    blank_base = -1
    for found in spans:
        if found.first < 0:
            continue
        if found.span.base == blank_base:
            yield StaleSpan(found.first, expected)
            continue
        if found.first > expected:
            yield Gap(expected, found.first)
        expected = found.end
        if found.ending is Ending.BLANK:
            blank_base = found.span.base
    if expected < end:
        yield Gap(expected, end)
