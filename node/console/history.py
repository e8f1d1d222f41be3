"""A node's last minutes and hours, for small plots: rings of a fixed length.

    counters ──difference──▶ rate ─▶ fine     5 minutes at 1 s
                                └─▶ coarse   3 hours at 30 s, the mean of what came in a step

A place of a ring is a step of time, so a step without a look stays empty and is shown as a gap,
also after a pause of the machine. A counter that went back belongs to a store that was opened
again: it counts from 0.

Pure: `now` is given, in seconds of a clock that never goes back.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

FINE_STEP_S = 1.0
FINE_PLACES = 300
COARSE_STEP_S = 30.0
COARSE_PLACES = 360
MEMBERS = 32
"""Nodes with rings of their own; a cluster has fewer."""
NOTHING = math.nan


class Ring:
    """The last `places` steps of one number; NaN where there is none."""

    def __init__(self, step_s: float, places: int) -> None:
        self.step_s = step_s
        self._values = array("d", [NOTHING]) * places
        self._step = 0
        """The newest step that has a place."""

    def put(self, now: float, value: float) -> None:
        """Steps since the last one become empty. A second value of a step replaces the first."""
        self._advance(int(now // self.step_s))
        self._values[self._step % len(self._values)] = value

    def read(self, now: float) -> list[float | None]:
        """The oldest first; the last is that of `now`'s step. Changes nothing."""
        places = len(self._values)
        first = (self._step + 1) % places
        later = min(places, max(0, int(now // self.step_s) - self._step))
        rows = (self._values[first:] + self._values[:first])[later:]
        return [None if math.isnan(each) else round(each, 3) for each in rows] + [None] * later

    def with_value(self, now: float, value: float) -> "Ring":
        """Another one, in which `value` was put."""
        ring = copy(self)
        ring._values = self._values[:]
        ring.put(now, value)
        return ring

    def _advance(self, step: int) -> None:
        values, places = self._values, len(self._values)
        for each in range(max(self._step + 1, step - places + 1), step + 1):
            values[each % places] = NOTHING
        self._step = max(self._step, step)


class Plot:
    """One number over the last minutes and hours."""

    def __init__(self) -> None:
        self.fine = Ring(FINE_STEP_S, FINE_PLACES)
        self.coarse = Ring(COARSE_STEP_S, COARSE_PLACES)
        self._sum, self._count, self._step = 0.0, 0, -1

    def put(self, now: float, value: float) -> None:
        self.fine.put(now, value)
        step = int(now // COARSE_STEP_S)
        if step != self._step:
            self._sum, self._count, self._step = 0.0, 0, step
        self._sum += value
        self._count += 1
        self.coarse.put(now, self._sum / self._count)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment. `counters` only grow, `levels` go up and down; `members` has
    wrote offset and lag in bytes of each node that is heard; the lag is None where no master
    measures it."""

    counters: Mapping[str, float]
    levels: Mapping[str, float]
    members: Mapping[str, tuple[int, int | None]]


class History:
    """See the module. Not thread-safe: it belongs to the loop."""

    def __init__(self) -> None:
        self._plots: dict[str, Plot] = {}
        self._last: tuple[float, Look] | None = None

    def put(self, now: float, look: Look) -> None:
        """Remember `look`, and the rates since the last one."""
        for name, value in look.levels.items():
            self._plot(name).put(now, value)
        known = [each for each in self._plots if each.startswith("lag ")]
        for node, (_, lag) in look.members.items():
            name = f"lag {node}"
            if name in known or len(known) < MEMBERS:
                plot = self._plot(name)
                if lag is not None:
                    plot.put(now, lag)
        if self._last is not None and now > self._last[0]:
            self._rates(now, self._last[0], self._last[1], look)
        self._last = now, look

    def read(self, now: float, *, coarse: bool = False) -> Mapping[str, Sequence[float | None]]:
        """By name; each list has FINE_PLACES or COARSE_PLACES numbers, the newest last."""
        return {
            name: (plot.coarse if coarse else plot.fine).read(now)
            for name, plot in self._plots.items()
        }

    def _rates(self, now: float, before_s: float, before: Look, look: Look) -> None:
        took_s = now - before_s
        for name, value in look.counters.items():
            if name in before.counters:
                self._plot(f"{name}/s").put(now, grown(before.counters[name], value) / took_s)
        for node, (wrote, _) in look.members.items():
            if node in before.members and f"lag {node}" in self._plots:
                # a log that was cut is shorter: nothing was written
                grew = max(0, wrote - before.members[node][0])
                self._plot(f"log {node}/s").put(now, grew / took_s)

    def _plot(self, name: str) -> Plot:
        plot = self._plots.get(name)
        if plot is None:
            plot = self._plots[name] = Plot()
        return plot


def grown(before: float, after: float) -> float:
    """By how much a counter has grown; one that is smaller began again."""
    return after - before if after >= before else after


TOPIC_STEP_S = 5.0
TOPIC_PLACES = 60
TOPICS = 256


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """At one moment, and never changed. `rates` by topic: messages in, bytes in, messages out,
    bytes out, a second; `rings`: messages in and out, of the topics with the most traffic."""

    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rings: Mapping[str, tuple[Ring, Ring]] = field(default_factory=dict)

    def plots(
        self, now: float, topics: Iterable[str]
    ) -> Mapping[str, Sequence[list[float | None]]]:
        """In and out of those of `topics` that have rings, the newest number last."""
        return {
            name: [ring.read(now) for ring in self.rings[name]]
            for name in topics
            if name in self.rings
        }


class TopicHistory:
    """Messages in and out a second of the topics with the most traffic; of all others the rates of
    the last step alone.

    With many topics a step takes some time, so `put` is called in a thread, one call at a time;
    `seen` is replaced as a whole, and may be read anywhere."""

    def __init__(self) -> None:
        self._last: tuple[float, Mapping[str, Sequence[float]]] | None = None
        self.seen = TopicsSeen()

    def put(self, now: float, topics: Mapping[str, Sequence[float]]) -> None:
        """`topics`: the four counters of each."""
        if self._last is not None and now > self._last[0]:
            before_s, before = self._last
            took_s = now - before_s
            zero = (0.0,) * 4
            rates = {
                name: [
                    grown(old, new) / took_s
                    for old, new in zip(before.get(name, zero), counts, strict=True)
                ]
                for name, counts in topics.items()
            }
            self.seen = TopicsSeen(rates, _with_rates(self.seen.rings, now, rates))
        self._last = now, topics


def _with_rates(
    before: Mapping[str, tuple[Ring, Ring]], now: float, rates: Mapping[str, Sequence[float]]
) -> Mapping[str, tuple[Ring, Ring]]:
    """Rings of the topics with the most traffic, with what they had and the new rates."""
    rings = {name: pair for name, pair in before.items() if name in rates}
    busy = [name for name, row in rates.items() if name not in rings and row[0] + row[2] > 0]
    for name in sorted(busy, key=lambda each: -(rates[each][0] + rates[each][2])):
        if len(rings) >= TOPICS:
            quiet = min(rings, key=lambda each: rates[each][0] + rates[each][2])
            if rates[quiet][0] + rates[quiet][2] >= rates[name][0] + rates[name][2]:
                break
            del rings[quiet]
        rings[name] = Ring(TOPIC_STEP_S, TOPIC_PLACES), Ring(TOPIC_STEP_S, TOPIC_PLACES)
    return {
        name: (
            taken.with_value(now, rates[name][0]),
            given.with_value(now, rates[name][2]),
        )
        for name, (taken, given) in rings.items()
    }
