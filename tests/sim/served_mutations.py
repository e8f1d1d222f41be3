"""Rules between clients and nodes, each switched off: a scene must notice every one.

That a deposed master does no harm rests on three rules, each of which is enough for most that can
happen: the client's, the chain's, the node's. So each has a check of its own, and all of them
together are switched off once, to see what they are for.
"""

from typing import Any

import sim.served_calls
import tandemlog.cluster.connection
import tandemlog.cluster.newest_epoch
import tandemlog.produce.chain
from sim.ha_mutations import Patch
from sim.served_promises import Promises
from sim.served_scenes import (
    Scene,
    deposed,
    first_commit,
    idle_at_the_end,
    lost_ahead,
    orphaned,
)
from tandemlog.cluster.topology import NodeInfo, Topology
from tandemlog.consume.group.commits import Commits
from tandemlog.consume.reading.cut_watch import CutWatch
from tandemlog.format.files.log_history import NO_CUT
from tandemlog_server.node.error_status import not_sure
from tandemlog_server.node.groups.offset_promises import OffsetPromises
from tandemlog_server.node.roles.master_role import MasterRole
from tandemlog_server.node.services.master_answers import Leadership


def any_epoch(epoch: int, newest: int) -> bool:
    return True


def any_refusal(epoch: int, written_in: int, newest: int) -> bool:
    return True


def any_master(self: Topology) -> NodeInfo | None:
    return self.master


def sure_of_itself(self: MasterRole) -> int | None:
    """It has not heard of another one."""
    return self.epoch()


async def led_by_its_own_word(self: Leadership, begun_in: int | None) -> int:
    return begun_in or 0


async def by_the_lease_alone(self: MasterRole) -> int:
    epoch = self.leased_epoch()
    if epoch is None:
        raise not_sure()
    return epoch


async def the_same_log(self: CutWatch, log_term: tuple[int, int], node: Any) -> int | None:
    return NO_CUT


async def commit_nothing(self: Commits, offsets: Any) -> None:
    return


async def settled_at_once(self: OffsetPromises, group: str, *, repeated: bool = False) -> None:
    return


CLIENT_FLOOR: list[Patch] = [
    (tandemlog.cluster.newest_epoch, "is_current", any_epoch),
    (tandemlog.cluster.connection, "is_current", any_epoch),
    (tandemlog.produce.chain, "is_current", any_epoch),
    (Topology, "authority", property(any_master)),
]
CHAIN: list[Patch] = [(tandemlog.produce.chain, "may_judge", any_refusal)]
NODE: list[Patch] = [(MasterRole, "leased_epoch", sure_of_itself)]

UNWATCHED: list[Patch] = [
    (sim.served_calls, "goes_back", lambda epoch, newest: False),
    (Promises, "is_old", lambda self, node, then: False),
]
"""The checks of each rule by itself; what is left is what clients see."""

MUTATIONS: dict[str, tuple[Scene, int, list[Patch]]] = {
    "a client goes below the newest epoch that it has seen": (deposed, 0, CLIENT_FLOOR),
    "a master refuses for ever without knowing that it leads": (deposed, 0, NODE),
    "a master reads its tables without knowing that it leads": (
        deposed,
        0,
        [(Leadership, "_still", led_by_its_own_word)],
    ),
    "the gap of a deposed master is a proof": (
        deposed,
        0,
        [*CLIENT_FLOOR, *CHAIN, *NODE, *UNWATCHED],
    ),
    "groups act on the lease alone": (orphaned, 0, [(MasterRole, "leads", by_the_lease_alone)]),
    "a position is believed by its number alone": (
        lost_ahead,
        0,
        [(CutWatch, "counts_below", the_same_log)],
    ),
    "where a group begins is not committed": (
        idle_at_the_end,
        0,
        [(Commits, "commit_starts", commit_nothing)],
    ),
    "where a group begins is acknowledged by the master alone": (
        first_commit,
        0,
        [(OffsetPromises, "wait_confirmed", settled_at_once)],
    ),
}
"""What is switched off: a scene, a seed of it that shows it, and how."""
