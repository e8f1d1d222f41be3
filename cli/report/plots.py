"""Plots as inline SVG: rows -> one element. No I/O.

Places across are percent of the width, heights and letters are pixels, and there is no viewBox: so
a plot is as wide as the window, and its letters are as large on a phone as on a screen.

    label                1,234       |   | ||            ==|==x=====|====
    =======                          | |||||||           0       offset
    bars                             histogram           strip

Each has a title and a description in words, for those who do not see it; the numbers themselves
stand in a table beside it. Colours are those of the style sheet, by class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from .markup import element, short

_MOST_BARS: Final = 12
_MOST_MARKS: Final = 200
_TIP_LETTERS: Final = 100
_BAR_LETTERS: Final = 32
"""What fits beside a number on a phone."""
_ROW: Final = 38
_HEIGHT: Final = 150
_LINE: Final = 20
_STRIP: Final = 28
_LEAST: Final = 0.4
"""Percent: what is there is seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`text` is the value in words, beside the label."""

    label: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A place of a strip, with what is there."""

    at: int
    text: str


def bars(title: str, rows: Sequence[Bar], others: str = "others") -> Element:
    """Lying bars, the largest first; of many the largest, and one for the sum of the `others`."""
    ordered = sorted(rows, key=lambda row: -row.value)
    shown, rest = ordered[:_MOST_BARS], ordered[_MOST_BARS:]
    total = sum(row.value for row in ordered)
    most = max((row.value for row in shown), default=0) or 1
    drawn: list[Element] = []
    for number, row in enumerate(shown):
        drawn += _bar(number * _ROW, row.label, row.text, 100 * row.value / most, row.label)
    if rest:
        part = 100 * sum(row.value for row in rest) / (total or 1)
        text = f"{part:.1f} % of all"
        drawn += _bar(len(shown) * _ROW, f"{len(rest):,} {others} more", text, None, "")
    first = f"{short(shown[0].label)} with {shown[0].text}" if shown else "nothing"
    words = f"{len(ordered):,} bars, the largest first: {first}."
    if rest:
        words += f" The {len(shown)} largest are drawn, {len(rest):,} {others} are not."
    return _svg(title, words, (len(shown) + bool(rest)) * _ROW, drawn)


def _bar(y: int, label: str, text: str, percent: float | None, tip: str) -> list[Element]:
    drawn = [
        element("text", short(label, _BAR_LETTERS), x=0, y=y + 14, class_="label"),
        element("text", text, x="100%", y=y + 14, class_="end"),
    ]
    if percent is not None:
        width = f"{max(percent, _LEAST):.2f}%" if percent else "0"
        drawn.append(element("rect", x=0, y=y + 20, width="100%", height=9, class_="track"))
        tips = element("title", f"{short(tip, _TIP_LETTERS)}: {text}")
        drawn.append(element("rect", tips, x=0, y=y + 20, width=width, height=9, class_="bar"))
    return drawn


def histogram(
    title: str, bins: Sequence[tuple[str, int]], ends: tuple[str, str], unit: str
) -> Element:
    """Standing bars side by side, each a label and a count of `unit`; `ends` are the texts below
    the first and the last one."""
    most = max((count for _, count in bins), default=0)
    share = 100 / max(len(bins), 1)
    drawn: list[Element] = [
        element("text", f"{most:,} {unit}", x=0, y=14, class_="label"),
        element("line", x1=0, x2="100%", y1=_LINE, y2=_LINE, class_="grid"),
    ]
    for number, (label, count) in enumerate(bins):
        if not count:
            continue
        height = max(count / most * _HEIGHT, 1)
        drawn.append(
            element(
                "rect",
                element("title", f"{label}: {count:,} {unit}"),
                x=f"{number * share + share / 20:.3f}%",
                width=f"{share * 0.9:.3f}%",
                y=f"{_LINE + _HEIGHT - height:.1f}",
                height=f"{height:.1f}",
                class_="bar",
            )
        )
    base = _LINE + _HEIGHT
    drawn += [
        element("line", x1=0, x2="100%", y1=base, y2=base, class_="axis"),
        element("text", ends[0], x=0, y=base + 18),
        element("text", ends[1], x="100%", y=base + 18, class_="end"),
    ]
    total = sum(count for _, count in bins)
    peak = next((label for label, count in bins if count == most), "")
    words = f"{total:,} {unit} from {ends[0]} to {ends[1]}"
    words += f"; most at {peak}: {most:,}." if total else "."
    return _svg(title, words, base + 24, drawn)


def strip(
    title: str, span: tuple[int, int], borders: Sequence[int], marks: Sequence[Mark]
) -> Element:
    """The log from its begin to its end as one band, with its files' borders, and marks where
    something is wrong."""
    start, end = span[0], max([span[1], span[0] + 1, *(mark.at for mark in marks)])
    start = min([start, *(mark.at for mark in marks)])

    def place(offset: int) -> str:
        return f"{100 * (offset - start) / (end - start):.3f}%"

    inside = [each for each in borders if start < each < end]
    drawn = [element("rect", x=0, y=_LINE, width="100%", height=_STRIP, class_="track")]
    # of very many files not every border can be seen
    for border in inside[:: len(inside) // 200 + 1]:
        where = place(border)
        drawn.append(
            element("line", x1=where, x2=where, y1=_LINE, y2=_LINE + _STRIP, class_="border")
        )
    for mark in marks[:_MOST_MARKS]:
        tip, where = (
            element("title", f"offset {mark.at}: {short(mark.text, _TIP_LETTERS)}"),
            place(mark.at),
        )
        bottom = _LINE + _STRIP + 4
        drawn.append(element("line", x1=where, x2=where, y1=12, y2=bottom, class_="fault"))
        drawn.append(element("circle", tip, cx=where, cy=12, r=5, class_="fault"))
    below = _LINE + _STRIP + 22
    drawn += [
        element("text", f"offset {start}", x=0, y=below),
        element("text", f"{end}", x="100%", y=below, class_="end"),
    ]
    files = len(inside) + 1
    words = (
        f"The log from offset {start} to {end}, in {files:,} {'file' if files == 1 else 'files'}: "
    )
    if not marks:
        words += "nothing is marked."
    else:
        words += f"{len(marks):,} marked, the first at offset {min(m.at for m in marks)}"
        words += f", the last at {max(m.at for m in marks)}."
    return _svg(title, words, below + 6, drawn)


def _svg(title: str, words: str, height: int, drawn: Sequence[Element]) -> Element:
    return element(
        "svg",
        element("title", title),
        element("desc", words),
        *drawn,
        role="img",
        width="100%",
        height=height,
    )
