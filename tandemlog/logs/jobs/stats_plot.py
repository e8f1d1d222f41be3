"""The plot of the job `stats`: when messages were stored, and how large they are."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

_MOST_TOPICS = 8
_MOST_LETTERS = 24
_OTHERS = "other topics"
_BINS = 60
_COLORS = 10
_HOUR = timedelta(hours=1)
_WIDE = 8
"""Sizes that differ by more than this factor get a logarithmic axis."""
_QUANTILES = (0.5, 0.9, 0.99)


def draw(
    path: Path,
    rows: Sequence[dict[str, Any]],
    sizes: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> None:
    """`rows` as in stats.parquet, `sizes` (bytes, how many) of each row. Raises OSError."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subplots(2, 1)
    _draw_hours(above, rows)
    _draw_sizes(below, sizes)
    figure.savefig(path, dpi=120)


def _draw_hours(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Stacked bars from the hour's begin to its end, the largest topics by name."""
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["topic"]] += row["records"]
    named = [topic for topic, _ in totals.most_common(_MOST_TOPICS)]
    hours = sorted({row["hour"] for row in rows})
    place = {hour: number for number, hour in enumerate(hours)}
    layers = {name: np.zeros(len(hours)) for name in (*named, _OTHERS)}
    for row in rows:
        name = row["topic"] if row["topic"] in named else _OTHERS
        layers[name][place[row["hour"]]] += row["records"]
    bottom = np.zeros(len(hours))
    colors = matplotlib.colormaps["tab10"]
    for number, (name, heights) in enumerate(layers.items()):
        if heights.any():
            color = colors(number % _COLORS)
            axes.bar(
                hours, heights, bottom=bottom, width=0.95 * _HOUR, align="edge", label=_label(name),
                color=color,
            )  # fmt: skip
            bottom += heights
    axes.set_ylabel("messages an hour")
    axes.set_title("When messages were stored (UTC)")
    axes.yaxis.set_major_formatter(FuncFormatter(_in_thousands))
    if not rows:
        return
    axes.set_xlim(hours[0] - _HOUR / 4, hours[-1] + 1.25 * _HOUR)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_sizes(axes: Any, sizes: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
    """A histogram, its bins growing by a factor where sizes are far apart; and the quantiles."""
    axes.set_xlabel("bytes of a record")
    axes.set_ylabel("messages")
    axes.set_title("How large messages are")
    axes.xaxis.set_major_formatter(FuncFormatter(_in_thousands))
    axes.yaxis.set_major_formatter(FuncFormatter(_in_thousands))
    if not sizes:
        return
    values = np.concatenate([each for each, _ in sizes])
    weights = np.concatenate([each for _, each in sizes])
    low, high = int(values.min()), int(values.max())
    if high > _WIDE * low:
        edges: NDArray[Any] = np.geomspace(low, high + 1, _BINS)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(_in_thousands))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        # Whole bytes: of bins narrower than a byte every other one would be empty.
        edges = np.arange(low, high + 2, max((high - low) // _BINS, 1)) - 0.5
        edges = np.append(edges, edges[-1] + (edges[-1] - edges[0]) / max(len(edges) - 1, 1))
    axes.hist(values, bins=edges, weights=weights, color="tab:gray")
    order = np.argsort(values)
    ends = np.cumsum(weights[order])
    for number, share in enumerate(_QUANTILES):
        value = int(values[order[np.searchsorted(ends, share * float(ends[-1]))]])
        label = f"p{round(100 * share)}: {value:,} bytes"
        axes.axvline(value, color=matplotlib.colormaps["tab10"](number), label=label)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _label(topic: str) -> str:
    """A topic, short enough for the legend, and as plain text for matplotlib."""
    if len(topic) > _MOST_LETTERS:
        half = _MOST_LETTERS // 2
        topic = f"{topic[:half]}…{topic[-half:]}"
    return topic.replace("$", r"\$")


def _in_thousands(value: float, position: object) -> str:
    del position
    return f"{value:,.0f}"
