"""Does this master still lead? A round of questions, as Raft asks them before a read.

    request ─▶ round n ─▶ a chunk to every slave ─▶ "n", in this epoch ─▶ of every member: it led
    request ─▶ round n+1 ...

What a master refuses, or reads from its tables, may be wrong from the moment in which another one
has been elected, and a master that has lost only the coordinator is not told of that. A valid
lease excludes it; where the lease is over, the members of the in-sync set know. A successor is
always elected from that set, and a node that leads acknowledges nothing to another master. So if
every member of every set in force has acknowledged, in this epoch, a question that was sent after
the request came, no term had begun by then that this master does not know: its answer was true at
that moment. That is as sure as an acknowledged put, and rests on the same rule (confirm_offset.py).

A master whose set is itself alone can ask no other node: it needs its lease. So does one with a
member that cannot answer: a node of an older version, or a broker that follows by another protocol.

One number serves all that wait when it is sent (waiters.py): a stream sends the newest one.
"""

from collections.abc import Callable, Collection

from ..state import Member


def led(
    sets: Collection[frozenset[Member]],
    me: Member,
    number: int,
    round_of: Callable[[Member], int],
) -> bool:
    """Whether every other member of every set in force has answered round `number` or a later
    one."""
    return all(
        len(members) > 1 and all(round_of(each) >= number for each in members - {me})
        for members in sets
    )
