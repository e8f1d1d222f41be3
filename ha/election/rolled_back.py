"""Is this still the disk that it was? Pure.

    confirmed, as the leader told the coordinator with its last renewal
                         │
    ─────────────────────▼──────────▶ log of every in-sync member, whole
    ─────────────▶                    log of a disk that was put back to a snapshot

Every in-sync member holds what is confirmed. So a log that ends before that, or has another history
there, is not the log of a member, whatever incarnation its disk names. A disk that was restored
from a snapshot of an earlier run counts fewer starts than the cluster has seen; after a snapshot of
the present run its log ends too early. A member that truncates keeps what is confirmed, so no
healthy disk is mistaken for a rolled back one.

After an unclean epoch confirmed bytes may be gone: only what a leader has told since then counts.
"""

from tandemlog.format.files.epochs import EpochTable

from ..state import Member
from .key_values import ClusterRecord, ConfirmedValue
from .role_host import OwnLog
from .snapshot import Snapshot


def confirmed_by(log: OwnLog, term: int, snapshot: Snapshot) -> ConfirmedValue:
    """What the leader of epoch `term` tells of its own log. A new leader may know of less than the
    one before had confirmed, and yet holds it: the mark does not move back."""
    record, confirmed = snapshot.record, snapshot.confirmed
    offset = log.confirm_offset
    if confirmed is not None and record is not None and still_counts(confirmed, record):
        offset = max(offset, confirmed.offset)
    last = log.epochs.entry_at(offset - 1)
    return ConfirmedValue(offset, 0 if last is None else last.epoch, term)


def lacks_confirmed(snapshot: Snapshot, end_offset: int, epochs: EpochTable) -> str:
    """Why this log is not that of an in-sync member; empty if it may be."""
    record, confirmed = snapshot.record, snapshot.confirmed
    if record is None or confirmed is None or not still_counts(confirmed, record):
        return ""
    if end_offset < confirmed.offset:
        return (
            f"its log ends at {end_offset}, but the cluster had confirmed it up to "
            f"{confirmed.offset} in epoch {confirmed.term}"
        )
    last = epochs.entry_at(confirmed.offset - 1)
    if confirmed.epoch and last is not None and last.epoch != confirmed.epoch:
        return (
            f"at {confirmed.offset} its log is one of epoch {last.epoch}, but the cluster had "
            f"confirmed one of epoch {confirmed.epoch}"
        )
    return ""


def still_counts(confirmed: ConfirmedValue, record: ClusterRecord) -> bool:
    """Whether no later epoch may have begun without it."""
    return confirmed.term >= record.unclean_epoch


def why_rolled_back(
    snapshot: Snapshot, node_id: str, starts: int, log: OwnLog, *, waits: bool
) -> str:
    """Why a node that starts, for the time `starts`, needs a new incarnation; empty if it does not.
    `waits`: acknowledgements wait for the in-sync set."""
    entry, record = snapshot.roster.get(node_id), snapshot.record
    counted = 0 if entry is None else entry.starts
    if counted >= starts:
        return (
            f"by its own count this is start {starts}, but the cluster has seen its start "
            f"{counted} before"
        )
    if not waits or record is None or Member(node_id, log.incarnation) not in record.in_sync:
        return ""
    return lacks_confirmed(snapshot, log.end_offset, log.epochs)
