"""Spans side by side: gaps between them, and records behind a BLANK."""

from dataclasses import dataclass

from tandemlog.logs.audit.span_gaps import Gap, StaleSpan, faults_between
from tandemlog.logs.reading.log_spans import Span
from tandemlog.logs.reading.span_scan import Ending


@dataclass
class Found:
    span: Span
    first: int
    end: int
    ending: Ending = Ending.NEXT


def span(base: int, start: int, end: int) -> Span:
    return Span(base, base + 100, start, end)


def test_spans_that_meet_have_no_fault() -> None:
    found = [
        Found(span(0, 0, 40), 0, 47),
        Found(span(0, 40, 100), 47, 100, Ending.BLANK),
        Found(span(100, 100, 150), 100, 150),
    ]
    assert list(faults_between(found, 0, 150)) == []


def test_a_hole_is_a_gap() -> None:
    found = [Found(span(0, 0, 40), 0, 47), Found(span(0, 40, 100), 60, 100, Ending.BLANK)]
    assert list(faults_between(found, 0, 150)) == [Gap(47, 60), Gap(100, 150)]


def test_a_span_in_which_no_record_begins_is_passed_over() -> None:
    found = [
        Found(span(0, 0, 20), 0, 70),
        Found(span(0, 20, 40), -1, 40, Ending.NOTHING),
        Found(span(0, 40, 100), 70, 100, Ending.BLANK),
    ]
    assert list(faults_between(found, 0, 100)) == []


def test_records_behind_a_blank_are_of_another_life() -> None:
    found = [
        Found(span(0, 0, 40), 0, 100, Ending.BLANK),
        Found(span(0, 40, 100), 80, 95),
        Found(span(100, 100, 120), 100, 120),
    ]
    assert list(faults_between(found, 0, 120)) == [StaleSpan(80, 100)]
