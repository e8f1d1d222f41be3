"""Delayed messages that wait: the snapshot against the log.

A message that waits has its record in the log, since retention keeps it, and whatever ends the wait
comes behind that record. So both sides must know the same rows, to the last column. Of the recalls
that are remembered the older ones may have expired.
"""

from collections.abc import Iterator

import numpy as np

from tandemlog.format.words import counted

from ...folds.delay_fold import RECALLS_KEPT, DelayFold
from ...folds.fold import ANYWHERE
from ...folds.waiting_rows import NewRows
from .findings import Findings


def delay_differences(fresh: DelayFold, snapshot: DelayFold, log_start: int) -> Findings:
    """`fresh` is made from the log from `log_start` on."""
    findings = Findings()
    mine, theirs = _waiting(fresh), _waiting(snapshot)
    old = theirs.offsets < log_start
    if old.any():
        findings.notes.append(
            f"{counted(int(old.sum()), 'delayed message')} of the snapshot cannot be compared: "
            f"the log with their records, from {int(theirs.offsets[0])} on, is gone, and they "
            "can never come"
        )
        theirs = theirs.taken(~old)
    for at in np.setdiff1d(mine.offsets, theirs.offsets).tolist():
        findings.add(
            at,
            f"the delayed message at log offset {at} waits by the log, and is not in the "
            "snapshot: it would never come",
        )
    for at in np.setdiff1d(theirs.offsets, mine.offsets).tolist():
        findings.add(
            at,
            f"the delayed message at log offset {at} waits in the snapshot; by the log it does "
            "not: it has come, was called back, or is none",
        )
    for at, text in _changed(mine, theirs):
        findings.add(at, text)
    _compare_recalls(findings, fresh, snapshot, log_start)
    return findings


def _waiting(fold: DelayFold) -> NewRows:
    return fold.rows.below(ANYWHERE - 1, len(fold.rows))


def _changed(mine: NewRows, theirs: NewRows) -> Iterator[tuple[int, str]]:
    """Rows that both have, with another value."""
    _, left, right = np.intersect1d(
        mine.offsets, theirs.offsets, assume_unique=True, return_indices=True
    )
    mine, theirs = mine.taken(left), theirs.taken(right)
    words = (
        ("due at {} ms", mine.due_ms, theirs.due_ms),
        ("its key has the hash {}", mine.keys, theirs.keys),
        ("its record has {} bytes", mine.sizes, theirs.sizes),
        ("it counts from its store time: {}", mine.counted, theirs.counted),
    )
    for form, log_values, values in words:
        for row in np.flatnonzero(log_values != values).tolist():
            at = int(mine.offsets[row])
            yield (
                at,
                (
                    f"the delayed message at log offset {at}: {form.format(log_values[row])} by "
                    f"the log, {form.format(values[row])} in the snapshot"
                ),
            )


def _compare_recalls(
    findings: Findings, fresh: DelayFold, snapshot: DelayFold, log_start: int
) -> None:
    known, noted = set(fresh.recalled), set(snapshot.recalled)
    for at in sorted(noted - known):
        if at >= log_start:
            findings.add(
                at,
                f"the delayed message at log offset {at} was called back by the snapshot; the "
                "log has no such recall",
            )
    if len(snapshot.recalled) >= RECALLS_KEPT:
        return  # the others may have been forgotten
    for at in sorted(known - noted):
        findings.add(
            at,
            f"the delayed message at log offset {at} was called back by the log; the snapshot "
            "does not say so: a repeated recall would be told that it has come",
        )
