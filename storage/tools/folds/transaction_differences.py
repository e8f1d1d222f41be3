"""Open transactions, outcomes and offsets of groups: the snapshot against the log.

    log    |.. deleted ..| L  H2 | OP H2 | COMMIT t3 | ..
    t2     decided here        too late, rolled back

An open half and all that follows from it are in the log, since retention keeps them: both sides
must know the same halves. Outcomes and offsets are remembered longer than the log. What the log
says of a transaction may then not be its first decision: the half of t2 came too late, and its OP
record alone would say that t2 was rolled back. A COMMIT is written for none that is decided. So it
tells the outcome for sure, and so does every decision that the snapshot has behind one: it keeps
them in the order of the log.
"""

from dataclasses import astuple
from typing import Any

from tandemlog.format.record.record import Record
from tandemlog.format.transaction.decision import Commit, OffsetsSet, said_by
from tandemlog.format.words import counted

from ...folds.transaction_fold import OUTCOMES_KEPT, OpenHalf, Place, TransactionFold
from .findings import Findings

_SAME: tuple[tuple[str, str], ...] = (
    ("size", "bytes of its record"),
    ("queue_offset", "queue offset"),
    ("store_timestamp", "store time"),
    ("committed", "committed"),
    ("delivered", "delivered"),
    ("recorded", "recorded as ended"),
)


class FreshTransactions(TransactionFold):
    """Remembers besides what the log says for sure: `commits`, transactions with a COMMIT, and
    `places`, offsets that were set and not only moved forward."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: set[str] = set()
        self.places: set[Place] = set()

    def _apply_said(self, record: Record) -> None:
        said = said_by(record)
        if isinstance(said, Commit):
            self.commits.add(said.transaction_id)
        elif isinstance(said, OffsetsSet):
            self.places |= {(each.group, each.topic, each.queue_id) for each in said.offsets}
        super()._apply_said(record)
        if len(self.commits) > 2 * OUTCOMES_KEPT:
            self.commits &= self.outcomes.keys()


def transaction_differences(
    fresh: FreshTransactions, snapshot: TransactionFold, log_start: int
) -> Findings:
    """`fresh` is made from the log from `log_start` on."""
    findings = Findings()
    _compare_halves(findings, fresh, snapshot, log_start)
    _compare_outcomes(findings, fresh, snapshot, log_start)
    _compare_offsets(findings, fresh, snapshot, log_start)
    _compare_numbers(findings, fresh, snapshot, log_start)
    return findings


def _compare_halves(
    findings: Findings, fresh: FreshTransactions, snapshot: TransactionFold, log_start: int
) -> None:
    old = [each for each in snapshot.halves if each < log_start]
    if old:
        findings.notes.append(
            f"{counted(len(old), 'half', 'halves')} of the snapshot cannot be compared: the log "
            f"with their records, from {old[0]} on, is gone"
        )
    for at, half in fresh.halves.items():
        other = snapshot.halves.get(at)
        if other is None:
            findings.add(at, f"{_name(half)} is {_state(half)} by the log, and not in the snapshot")
            continue
        _compare_half(findings, half, other, whole=log_start == 0)
    for at, half in snapshot.halves.items():
        if at >= log_start and at not in fresh.halves:
            findings.add(
                at,
                f"{_name(half)} is {_state(half)} in the snapshot; by the log it has ended, or "
                "is none",
            )


def _compare_half(findings: Findings, log: OpenHalf, other: OpenHalf, *, whole: bool) -> None:
    pairs: list[tuple[str, Any, Any]] = [
        (words, getattr(log, name), getattr(other, name)) for name, words in _SAME
    ]
    pairs.append(("its message", astuple(log.half), astuple(other.half)))
    # the log alone may lack the OP records before
    if log.op_begin > other.op_begin or whole:
        pairs.append(("OP records from", log.op_begin, other.op_begin))
    for words, mine, theirs in pairs:
        if mine != theirs:
            findings.add(
                log.log_offset,
                f"{_name(log)}: {words} {mine} by the log, {theirs} in the snapshot",
            )


def _name(half: OpenHalf) -> str:
    return f"transaction {half.half.transaction_id}, half at log offset {half.log_offset}"


def _state(half: OpenHalf) -> str:
    return "open" if half.undecided else "committed and not finished"


def _compare_outcomes(
    findings: Findings, fresh: FreshTransactions, snapshot: TransactionFold, log_start: int
) -> None:
    unknown = 0
    # no decision behind this one in the snapshot can be older than the log
    sure = log_start == 0
    for transaction_id, committed in snapshot.outcomes.items():
        known = fresh.outcomes.get(transaction_id)
        by_commit = transaction_id in fresh.commits
        if known is not None and known != committed and (sure or by_commit):
            findings.add(
                _place(fresh, transaction_id),
                f"transaction {transaction_id}: {_outcome(known)} by the log, "
                f"{_outcome(committed)} in the snapshot",
            )
        elif known is None and log_start == 0:
            findings.add(
                0,
                f"transaction {transaction_id}: not decided by the log, {_outcome(committed)} in "
                "the snapshot",
            )
        unknown += known != committed and not (sure or by_commit)
        sure = sure or (by_commit and committed and known is True)
    full = len(snapshot.outcomes) >= OUTCOMES_KEPT
    for transaction_id, committed in fresh.outcomes.items():
        if transaction_id in snapshot.outcomes:
            continue
        if full and transaction_id not in fresh.commits:
            continue  # decided before the log begins, and forgotten
        findings.add(
            _place(fresh, transaction_id),
            f"transaction {transaction_id}: {_outcome(committed)} by the log, not decided in the "
            "snapshot",
        )
    if unknown:
        findings.notes.append(
            f"{counted(unknown, 'outcome')} of transactions cannot be compared: the log, which "
            f"begins at {log_start}, does not tell {'it' if unknown == 1 else 'them'} any more"
        )


def _outcome(committed: bool) -> str:
    return "committed" if committed else "rolled back"


def _place(fresh: TransactionFold, transaction_id: str) -> int:
    """Where its first half is that is not done with; 0 if all are."""
    return next((each.log_offset for each in fresh.of(transaction_id)), 0)


def _compare_offsets(
    findings: Findings, fresh: FreshTransactions, snapshot: TransactionFold, log_start: int
) -> None:
    """An offset that only moves forward may have come further before the log begins."""
    for place in fresh.offsets.keys() | snapshot.offsets.keys() | fresh.places:
        mine, theirs = fresh.offsets.get(place), snapshot.offsets.get(place)
        if mine == theirs:
            continue
        sure = log_start == 0 or place in fresh.places
        behind = mine is not None and (theirs is None or theirs < mine)
        if sure or behind:
            group, topic, queue_id = place
            findings.add(
                mine or 0,
                f"group {group}, queue {topic}/{queue_id}: transactions have set the offset "
                f"{mine} by the log, {theirs} in the snapshot",
            )


def _compare_numbers(
    findings: Findings, fresh: FreshTransactions, snapshot: TransactionFold, log_start: int
) -> None:
    """The next queue offsets of halves and OP records, which only grow."""
    mine, theirs = fresh.snapshot().head, snapshot.snapshot().head
    for name, words in (("next_half", "half"), ("next_op", "OP record")):
        log, other = int(mine[name]), int(theirs[name])
        if log > other or (log != other and log_start == 0):
            findings.add(
                log,
                f"the next {words} has the queue offset {log} by the log, {other} in the snapshot",
            )
