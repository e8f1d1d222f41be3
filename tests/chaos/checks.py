"""What must hold of everything that was acknowledged, read and led; no I/O.

    acknowledged  number of the message ─▶ the place that the producer was told
    seen          place ─▶ body, of every message that any reader ever got
    held          node ─▶ place ─▶ body: what each node serves at the end, or after a fault
    leaders       epoch ─▶ every node that led in it, by whatever evidence

A place is (queue id, queue offset). A message's body is its number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

Place = tuple[int, int]
Bodies = Mapping[Place, bytes]
UNKNOWN_OFFSET = -1
"""The place of a message whose repetition was acknowledged after its place was forgotten."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A broken promise. `kind`: lost, duplicated, vanished, skipped, leaders or archive."""

    kind: str
    text: str


def body_of(number: int) -> bytes:
    return str(number).encode()


def lost(acknowledged: Mapping[int, Place], held: Mapping[str, Bodies]) -> list[Finding]:
    """Acknowledged messages that a node does not have where the producer was told."""
    found = []
    for node, bodies in held.items():
        anywhere = set(bodies.values())
        for number, place in acknowledged.items():
            wanted = body_of(number)
            if place[1] == UNKNOWN_OFFSET:
                if wanted not in anywhere:
                    found.append(Finding("lost", f"{node} has {number} nowhere"))
            elif bodies.get(place) != wanted:
                there = f"{node} has {bodies.get(place)!r} at {place}"
                found.append(Finding("lost", f"{there}, where {number} was acknowledged"))
    return found


def duplicated(held: Mapping[str, Bodies]) -> list[Finding]:
    """Messages that a node has more than once, acknowledged or not."""
    return [
        Finding("duplicated", f"{node} has {body.decode(errors='replace')} {times} times")
        for node, bodies in held.items()
        for body, times in Counter(bodies.values()).items()
        if times > 1
    ]


def vanished(seen: Bodies, held: Mapping[str, Bodies]) -> list[Finding]:
    """What a reader got, and a node does not have any more, or has with another content."""
    return [
        Finding("vanished", f"{body!r} was read at {place}, and {node} has {bodies.get(place)!r}")
        for node, bodies in held.items()
        for place, body in seen.items()
        if bodies.get(place) != body
    ]


def two_leaders(leaders: Mapping[int, Iterable[str]]) -> list[Finding]:
    """Epochs in which more than one node led."""
    return [
        Finding("leaders", f"epoch {epoch} was led by {' and '.join(sorted(names))}")
        for epoch, names in sorted((epoch, set(names)) for epoch, names in leaders.items())
        if len(names) > 1
    ]


def longest_gap(times: list[float], began: float, ended: float) -> float:
    """Of the pauses between two acknowledgements that touch the time from `began` to the first
    acknowledgement after `ended`; `times` ascend. Without one of these two, infinite."""
    before = [at for at in times if at <= began][-1:]
    after = [at for at in times if at > ended][:1]
    if not before or not after:
        return float("inf")
    moments = before + [at for at in times if began < at <= ended] + after
    return max(later - earlier for earlier, later in pairwise(moments))
