"""Checks neighbouring spans: does each begin where the last one ended.

    spans     |first ... end|first ... end|        end == first: nothing lies between them
                            |  ????  |first        a hole, or damage over the border

If not, no span recognised the bytes between them as records. Records after a BLANK in the same file
are left over from an earlier use of that file and do not count.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..reading.log_spans import Span
from ..reading.span_scan import Ending


class ScannedSpan(Protocol):
    """The result of a scan of a span; see SpanScan."""

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
    """A span whose records are behind a BLANK."""

    start: int
    blank: int


def faults_between(spans: Iterable[ScannedSpan], start: int, end: int) -> Iterator[Gap | StaleSpan]:
    """What lies between start and end of a log and is in no span, in order."""
    expected = start
    blank_base = -1
    for scanned in spans:
        if scanned.first < 0:
            continue
        if scanned.span.base == blank_base:
            yield StaleSpan(scanned.first, expected)
            continue
        if scanned.first > expected:
            yield Gap(expected, scanned.first)
        expected = scanned.end
        if scanned.ending is Ending.BLANK:
            blank_base = scanned.span.base
    if expected < end:
        yield Gap(expected, end)
