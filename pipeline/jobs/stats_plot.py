"""The plot of the job `stats`: when the messages came, and how large they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from numpy.typing import NDArray

_MOST_TOPICS = 8
_OTHERS = "other topics"
_BINS = 60
_COLORS = 10


def draw(
    path: Path,
    rows: Sequence[dict[str, Any]],
    sizes: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> None:
    """`rows` as stats makes them, `sizes` (bytes, how many) of each. Raises OSError."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subplots(2, 1)
    _draw_hours(above, rows)
    _draw_sizes(below, sizes)
    figure.savefig(path, dpi=120)


def _draw_hours(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Stacked bars, the largest topics by name."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["topic"]] = totals.get(row["topic"], 0) + row["records"]
    named = sorted(totals, key=lambda topic: -totals[topic])[:_MOST_TOPICS]
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
            axes.bar(hours, heights, bottom=bottom, width=1 / 26, label=name, color=color)
            bottom += heights
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_ylabel("messages an hour")
    axes.set_title("When messages were stored (UTC)")
    if rows:
        axes.legend(fontsize="small", ncols=3)


def _draw_sizes(axes: Any, sizes: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
    """A histogram over sizes that grow by a factor from bin to bin."""
    axes.set_xlabel("bytes of a record")
    axes.set_ylabel("messages")
    axes.set_title("How large messages are")
    if not sizes:
        return
    values = np.concatenate([each for each, _ in sizes])
    weights = np.concatenate([each for _, each in sizes])
    edges = np.geomspace(values.min(), values.max() + 1, _BINS)
    axes.hist(values, bins=edges, weights=weights)
    axes.set_xscale("log")
