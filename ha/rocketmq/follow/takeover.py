"""May this node become the master of the log that it follows? Decided as pure code.

    the broker answers       it must refuse writes, all that it has must be here, and nothing may
                             have come for a moment: producers learn late of a changed permission
    no process is there      all that it was last seen to have must be here
    it does not answer       it may be alive, and take writes: only an operator can know

RocketMQ's wire has no epochs, so nothing keeps a broker that comes back from taking writes. What it
acknowledged by itself (ASYNC_MASTER) in the last moment before a crash cannot be seen from here.
"""

from dataclasses import dataclass
from enum import Enum

QUIET_S = 3.0
STOPPED_S = 1.0


class Presence(Enum):
    """What became of the last attempt to ask the broker."""

    ANSWERS = "answers"
    NO_PROCESS = "no process"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Look:
    """The broker and this node now. Offsets are positions in the log, `*_s` seconds since.
    `broker_end` is its end when it was last asked, None if that never was; `gone_s` how long no
    process has been at its address."""

    broker: str
    presence: Presence
    takes_writes: bool
    broker_end: int | None
    seen_s: float
    gone_s: float
    followed: bool
    durable: int
    reputed: int
    quiet_s: float


def obstacle(look: Look, *, force: bool) -> str:
    """What to wait for; empty if the node may take over now. `force`: do not care for the
    broker."""
    if not look.followed:
        return f"this node has not followed {look.broker} since it was started"
    if not force and (reason := _of_broker(look)):
        return reason
    if look.reputed < look.durable:
        return f"{look.durable - look.reputed} bytes of the log are not in the queues yet"
    return ""


def _of_broker(look: Look) -> str:
    end = look.broker_end
    missing = 0 if end is None else end - look.durable
    if look.presence is Presence.ANSWERS:
        if look.takes_writes:
            return (
                f"{look.broker} still takes writes: stop its producers, then stop it, or set "
                "brokerPermission to 4 (mqadmin updateBrokerConfig -k brokerPermission -v 4)"
            )
        if missing > 0:
            return f"{missing} bytes of the broker's log are still to come"
        if look.quiet_s < QUIET_S:
            return f"the broker's log grew {look.quiet_s:.1f} s ago, {QUIET_S:g} s of rest are due"
        return ""
    if look.presence is Presence.SILENT:
        return (
            f"{look.broker} does not answer, but it may be alive and take writes: stop it, or "
            "give --force if its machine is surely down"
        )
    if missing > 0:
        return (
            f"{look.broker} is gone, and its log ended at {end} when it was last asked, "
            f"{look.seen_s:.1f} s ago: {missing} bytes are not here. Start it again, or give "
            "--force to lose them"
        )
    if look.gone_s < STOPPED_S:
        return f"{look.broker} has just gone, {STOPPED_S:g} s without it are due"
    return ""
