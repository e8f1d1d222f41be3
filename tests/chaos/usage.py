"""What the nodes take: resident memory and descriptors, after each fault.

A process that a fault ended begins again, so what grows is seen in those that live on: `growth` is
by how much a process has grown since its second sample. The first one is of a node that has just
started.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_RESIDENT = re.compile(r"VmRSS:\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class Taken:
    """By one process at one time."""

    resident_mb: float
    descriptors: int


def taken_by(pid: int) -> Taken | None:
    """None for a process that is gone."""
    try:
        found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text())
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    return None if found is None else Taken(int(found[1]) / 1024, descriptors)


class Usage:
    """Of all nodes of a run."""

    def __init__(self) -> None:
        self._samples: dict[int, list[Taken]] = {}

    def sample(self, pids: Iterable[int]) -> None:
        """Look at these processes."""
        for pid in pids:
            if (taken := taken_by(pid)) is not None:
                self._samples.setdefault(pid, []).append(taken)

    def report(self) -> dict[str, float]:
        """The most of any process, and the most that one has grown by."""
        everything = [each for samples in self._samples.values() for each in samples]
        settled = [samples[1:] for samples in self._samples.values() if len(samples) > 2]
        return {
            "samples": len(everything),
            "most_memory_mb": round(max((each.resident_mb for each in everything), default=0)),
            "most_descriptors": max((each.descriptors for each in everything), default=0),
            "memory_growth_mb": round(
                max((each[-1].resident_mb - each[0].resident_mb for each in settled), default=0)
            ),
            "descriptor_growth": max(
                (each[-1].descriptors - each[0].descriptors for each in settled), default=0
            ),
        }
