"""May this node become the master of the log that it follows? Decided as pure code.

    the broker answers       it must refuse writes, all that it has must be here, and nothing may
                             have come for a moment: producers learn late of a changed permission
    no process is there      the log was compared with that of its last process, and all that it was
                             last seen to have must be here
    it does not answer       it may be alive, and take writes: only an operator can know
    another one answers      that says nothing of the broker that was followed

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
    ANOTHER = "another broker"


@dataclass(frozen=True, slots=True)
class Look:
    """The broker and this node now. Offsets are positions in the log, `*_s` seconds since.
    `broker_end` is its end when it was last asked, None if that never was; `gone_s` how long no
    process has been at its address; `known`: this store holds the log of a broker; `compared`: it
    was found to be equal to that of the broker's present process, or its last one; `detail`: why
    the broker did not answer, or another one."""

    broker: str
    presence: Presence
    takes_writes: bool
    broker_end: int | None
    seen_s: float
    gone_s: float
    known: bool
    compared: bool
    durable: int
    reputed: int
    quiet_s: float
    detail: str = ""


def obstacle(look: Look, *, force: bool) -> str:
    """What to wait for; empty if the node may take over now. `force`: do not care for the
    broker."""
    if not look.known:
        return f"this node has not followed {look.broker} yet"
    if not force and (reason := _of_broker(look)):
        return reason
    if look.reputed < look.durable:
        return f"{look.durable - look.reputed} bytes of the log are not in the queues yet"
    return ""


def _of_broker(look: Look) -> str:
    if look.presence is Presence.ANOTHER:
        return f"{look.detail}. Give --force if {look.broker} is surely down"
    if look.presence is Presence.SILENT:
        return (
            f"{look.broker} does not answer, but it may be alive and take writes ({look.detail}): "
            "stop it, or give --force if its machine is surely down"
        )
    return _of_one_that_answers(look) if look.presence is Presence.ANSWERS else _of_one_gone(look)


def _of_one_that_answers(look: Look) -> str:
    missing = 0 if look.broker_end is None else look.broker_end - look.durable
    if look.takes_writes:
        return (
            f"{look.broker} still takes writes: stop its producers, then stop it, or set "
            "brokerPermission to 4 (mqadmin updateBrokerConfig -k brokerPermission -v 4)"
        )
    if not look.compared:
        return "the log here is not compared with the broker's yet"
    if missing > 0:
        return f"{missing} bytes of the broker's log are still to come"
    if look.quiet_s < QUIET_S:
        return f"the broker's log grew {look.quiet_s:.1f} s ago, {QUIET_S:g} s of rest are due"
    return ""


def _of_one_gone(look: Look) -> str:
    if look.broker_end is None or not look.compared:
        return (
            f"{look.broker} is gone, and the log here was not compared with that of its last "
            "process, so messages may be missing. Start it again, or give --force to lose them"
        )
    missing = look.broker_end - look.durable
    if missing > 0:
        return (
            f"{look.broker} is gone, and its log ended at {look.broker_end} when it was last "
            f"asked, {look.seen_s:.1f} s ago: {missing} bytes are not here. Start it again, or "
            "give --force to lose them"
        )
    if look.gone_s < STOPPED_S:
        return f"{look.broker} has just gone, {STOPPED_S:g} s without it are due"
    return ""
