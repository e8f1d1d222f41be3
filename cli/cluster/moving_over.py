"""The sentences of `tandemlog takeover`."""

from collections.abc import Sequence

from tandemlog.cluster.takeover import DRY_RUN, Takeover
from tandemlog.cluster.topology import Topology
from tandemlog.format.words import counted

from ..output.tables import Row, date_text

MOST_SHOWN = 8


def plan_lines(found: Takeover) -> list[str]:
    """What would be done, and what there is to wait for."""
    end = found.broker_end_offset
    seen = "was not asked yet" if end < 0 else f"ended at {end} when it was last asked"
    lines = [
        f"{found.node_id} becomes the master of the log of {found.broker}, and follows no longer.",
        f"The broker's log {seen}; this node has it up to {found.end_offset}.",
    ]
    if found.waits_for not in ("", DRY_RUN):
        lines.append(f"Now it waits: {found.waits_for}.")
    return lines


def moved_lines(found: Takeover, groups: Sequence[str], topology: Topology) -> list[str]:
    """What was done, and what there is to change elsewhere."""
    endpoint = topology.master.endpoint if topology.master is not None else "HOST:PORT"
    shown = ", ".join(groups[:MOST_SHOWN])
    more = len(groups) - MOST_SHOWN
    names = f"{shown} and {more} more" if more > 0 else shown or "none"
    lines = [
        f"{found.node_id} is the master since {date_text(found.taken_ms)}, epoch {found.epoch}, "
        f"from log offset {found.end_offset} on."
    ]
    if found.break_ms:
        lines.append(
            f"Writers had a break of {found.break_ms / 1000:.1f} s: the broker stored its newest "
            f"message at {date_text(found.last_stored_ms)}."
        )
    return [
        *lines,
        f'Producers: send to tandemlog.Producer("{endpoint}"); RocketMQ\'s clients cannot.',
        f'Consumers: tandemlog.Consumer("{endpoint}", group=…) continues where the group of the '
        f"same name stopped; {counted(len(groups), 'group')}: {names}.",
        f"Keep {found.broker} stopped: started as a master it would take messages of its own. "
        "It may come back as a slave of this node (docs/rocketmq-live.md).",
        "Remove follow from the configuration of this node.",
    ]


def row_of(found: Takeover, groups: Sequence[str], *, dry_run: bool) -> Row:
    """For programs."""
    return {
        "node": found.node_id,
        "taken_over": found.taken_over,
        "dry_run": dry_run,
        "waits_for": found.waits_for,
        "broker": found.broker,
        "end_offset": found.end_offset,
        "broker_end_offset": found.broker_end_offset,
        "epoch": found.epoch,
        "last_stored_ms": found.last_stored_ms,
        "taken_ms": found.taken_ms,
        "break_ms": found.break_ms,
        "groups": list(groups),
    }
