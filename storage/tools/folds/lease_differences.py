"""What groups have done of their work queues: the snapshot against the log.

    log        | progress | STATE | progress ..       a whole STATE, or the first record of all:
    fresh                 everything from here on     the fresh fold knows everything

If the log has neither, as after log files were deleted by hand, the fresh fold knows less. Then
only what the log does say must be in the snapshot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.progress import QueueProgress

from ...folds.lease_fold import LeaseFold
from ...leases.progress_table import UNKNOWN
from .findings import Findings

Range = tuple[int, int]


def lease_differences(fresh: LeaseFold, snapshot: LeaseFold, log_start: int) -> Findings:
    """`fresh` is made from the log from `log_start` on."""
    findings = Findings()
    needed = snapshot.needs_from()
    whole = log_start == 0 or fresh.base_offset != UNKNOWN or needed >= log_start
    if not whole:
        findings.notes.append(
            f"what groups did before log offset {log_start} cannot be compared: the log begins "
            f"there, and has no complete state of all groups behind it (the snapshot names one "
            f"at {needed})"
        )
    _compare_begins(findings, fresh, snapshot, log_start)
    mine, theirs = _by_queue(fresh), _by_queue(snapshot)
    for key, queue in mine.items():
        other = theirs.get(key)
        if other is None:
            findings.add(
                0, f"{_name(queue)}: the log says what is done there, the snapshot nothing"
            )
            continue
        _QueueComparison(findings, queue, other, whole).run()
    for key, queue in theirs.items():
        if key not in mine and whole:
            findings.add(
                0,
                f"{_name(queue)}: the snapshot says what is done there, the log nothing",
            )
    return findings


def _by_queue(fold: LeaseFold) -> dict[tuple[str, str, int], QueueProgress]:
    return {(each.group, each.topic, each.queue_id): each for each in fold.everything()[0]}


def _name(queue: QueueProgress) -> str:
    return f"group {queue.group}, queue {queue.topic}/{queue.queue_id}"


def _compare_begins(
    findings: Findings, fresh: LeaseFold, snapshot: LeaseFold, log_start: int
) -> None:
    """Retention keeps the log from the newest complete state on, or from the first record. A
    snapshot may not have noticed the newest one: it forgets a state that was half written."""
    first, base = snapshot.first_offset, snapshot.base_offset
    known = fresh.base_offset
    if base >= log_start and (known == UNKNOWN or base > known):
        there = "none" if known == UNKNOWN else f"the last one at {known}"
        findings.add(
            base,
            f"the snapshot says that a complete state of all groups begins at log offset {base}; "
            f"the log has {there}",
        )
    if fresh.first_offset != UNKNOWN and (first == UNKNOWN or first > fresh.first_offset):
        findings.add(
            fresh.first_offset,
            f"the first progress of groups is at log offset {fresh.first_offset}; the snapshot "
            f"says {'that there is none' if first == UNKNOWN else f'at {first}'}",
        )


@dataclass(frozen=True, slots=True)
class _QueueComparison:
    """One queue of one group; `whole`: the log says everything."""

    findings: Findings
    log: QueueProgress
    snapshot: QueueProgress
    whole: bool

    def run(self) -> None:
        log, snapshot = self.log, self.snapshot
        if log.generation != snapshot.generation:
            if self.whole or log.generation > snapshot.generation:
                self._add(
                    log.floor or 0,
                    f"the queue has begun again {log.generation} times by the log, "
                    f"{snapshot.generation} times in the snapshot",
                )
            return
        self._compare_done()
        self._compare_attempts()
        self._compare_errors()

    def _add(self, position: int, text: str) -> None:
        self.findings.add(position, f"{_name(self.log)}, {text}")

    def _compare_done(self) -> None:
        log, snapshot = _done(self.log), _done(self.snapshot)
        for start, end in _without(log, snapshot):
            there = self._in_flight(self.snapshot, start, end)
            self._add(
                start, f"{_offsets(start, end)}: acknowledged by the log, {there} in the snapshot"
            )
        if not self.whole:
            return
        for start, end in _without(snapshot, log):
            there = self._in_flight(self.log, start, end)
            self._add(
                start, f"{_offsets(start, end)}: {there} by the log, acknowledged in the snapshot"
            )

    @staticmethod
    def _in_flight(queue: QueueProgress, start: int, end: int) -> str:
        """What is said of these messages, none of which is done."""
        at = int(queue.offsets.searchsorted(start))
        tried = at < len(queue.offsets) and int(queue.offsets[at]) < end
        return f"in flight (attempt {int(queue.attempts[at])})" if tried else "in flight"

    def _compare_attempts(self) -> None:
        log, snapshot = self.log, self.snapshot
        for at in np.setdiff1d(log.offsets, snapshot.offsets).tolist():
            if not _contains(_done(snapshot), at):
                row = int(log.offsets.searchsorted(at))
                times = int(log.attempts[row])
                self._add(at, f"{_offsets(at, at + 1)}: attempt {times} by the log, none in "
                              "the snapshot")  # fmt: skip
        for at in np.setdiff1d(snapshot.offsets, log.offsets).tolist():
            if self.whole and not _contains(_done(log), at):
                row = int(snapshot.offsets.searchsorted(at))
                times = int(snapshot.attempts[row])
                self._add(at, f"{_offsets(at, at + 1)}: no attempt by the log, attempt {times} "
                              "in the snapshot")  # fmt: skip
        both, left, right = np.intersect1d(
            log.offsets, snapshot.offsets, assume_unique=True, return_indices=True
        )
        self._compare_columns("attempt {}", both, log.attempts[left], snapshot.attempts[right])
        self._compare_columns(
            "first attempt at {} ms", both, log.first_ms[left], snapshot.first_ms[right]
        )

    def _compare_columns(
        self,
        form: str,
        offsets: NDArray[np.int64],
        log: NDArray[np.integer],
        snapshot: NDArray[np.integer],
    ) -> None:
        for row in np.flatnonzero(log != snapshot).tolist():
            at = int(offsets[row])
            self._add(
                at,
                f"{_offsets(at, at + 1)}: {form.format(int(log[row]))} by the log, "
                f"{form.format(int(snapshot[row]))} in the snapshot",
            )

    def _compare_errors(self) -> None:
        """Only of those that both have: how many are kept is bounded, on each side by itself."""
        for at, text in self.log.errors.items():
            other = self.snapshot.errors.get(at, text)
            if other != text:
                self._add(
                    at,
                    f"{_offsets(at, at + 1)}: its last error is {text!r} by the log, {other!r} in "
                    "the snapshot",
                )


def _offsets(start: int, end: int) -> str:
    if end - start == 1:
        return f"queue offset {start}"
    return f"queue offsets {start} to {end - 1}"


# ---- ranges, half open and ascending


def _done(queue: QueueProgress) -> list[Range]:
    ranges = list(zip(queue.ended_starts.tolist(), queue.ended_ends.tolist(), strict=True))
    return [(0, queue.floor), *ranges] if queue.floor else ranges


def _contains(ranges: Sequence[Range], offset: int) -> bool:
    return any(start <= offset < end for start, end in ranges)


def _without(ranges: Sequence[Range], others: Sequence[Range]) -> Iterator[Range]:
    """What is in `ranges` and not in `others`."""
    following = 0
    for start, end in ranges:
        while following < len(others) and others[following][1] <= start:
            following += 1
        at = following
        while start < end:
            if at == len(others) or others[at][0] >= end:
                yield start, end
                break
            if others[at][0] > start:
                yield start, others[at][0]
            start = others[at][1]
            at += 1
