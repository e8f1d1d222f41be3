"""What to do about a log or a store that is not sound: the first steps of docs/damaged-store.md."""

from typing import Final

_COPY: Final = "Keep the files as they are and work on a copy: docs/damaged-store.md has each step."
_DERIVED: Final = (
    "The log has no fault here, so no message is lost: `tandemlog rebuild STORE` builds queues and "
    "index again from it."
)
_SNAPSHOT: Final = (
    "Of a snapshot, of a failed fsync and of a broken-off set-aside, the fault itself says what to "
    "do; `tandemlog recover STORE` opens the store once, while no node has it open."
)


def of_log() -> tuple[str, ...]:
    """The log itself has faults."""
    return (
        _COPY,
        "Is another copy whole (a replica, a backup, an archive)? `tandemlog verify STORE "
        "--against OTHER` names what each of them lacks. In a cluster the scrub mends a damaged "
        "record from another node, and `tandemlog reinit NODE` lets a node take everything from "
        "the master.",
        "If only the end of the log is damaged: `tandemlog recover COPY --dry-run` says what would "
        "be cut.",
        "To save what can be read: `tandemlog export COPY --out DIR --on-corruption report`.",
    )


def of_store(*, log: bool, derived: bool, others: bool) -> tuple[str, ...]:
    """A store has faults in its log, in its queues or index, in other files."""
    ways = of_log() if log else (_COPY,)
    if derived and not log:
        ways += (_DERIVED,)
    return (*ways, _SNAPSHOT) if others else ways


def of_difference() -> tuple[str, ...]:
    """Two copies differ."""
    return (
        "Find out which copy is whole: `tandemlog verify` on each of them; a finding below that "
        "says `damaged in` names it too.",
        "A replica that differs takes everything from the master again: `tandemlog reinit NODE`. "
        "Of files, copy the log file of the whole one; docs/damaged-store.md has an example.",
    )


def of_nothing_in_common() -> tuple[str, ...]:
    """Two stores share no confirmed part of their logs."""
    return (
        "Nothing says that the two agree. Check that they are replicas of one cluster, and that "
        "retention has not deleted what both had; `--exact` compares two copies whole.",
    )
