"""Rules of the protocol, each switched off by one patch: the simulation must notice every one.

A mutation is a list of (module or class, attribute, replacement). Where two rules guard the same
thing (an epoch table that lies is also found by the proof of bytes) both are switched off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fakes.fake_store import FakeStore
from sim.ha_cluster import Cluster
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.ha.master import confirm_offset, sync_state_set, term
from tandemlog_server.ha.master.confirm_offset import Match
from tandemlog_server.ha.master.sync_state_set import SetRules, SyncStateSet
from tandemlog_server.ha.protocol import handshake
from tandemlog_server.ha.protocol.frames import Ack, Checksum
from tandemlog_server.ha.protocol.handshake import MasterView
from tandemlog_server.ha.slave import store
from tandemlog_server.ha.slave.session import SlaveAction, SlaveSession, SlaveState
from tandemlog_server.ha.state import HaState, Member
from tandemlog_server.ha.store_port import StorePort

Patch = tuple[Any, str, Any]


def second_lowest(positions: Iterable[int | None]) -> int | None:
    known = sorted(position or 0 for position in positions)
    return known[min(1, len(known) - 1)]


def every_ack_counts(ack: Ack, epoch: int, match: Match) -> bool:
    return True


def flush_without_fsync(store: FakeStore) -> int:
    store.log.flushed.advance(store.disk.end)
    return store.disk.end


def written_is_enough(store: StorePort) -> int:
    return store.log.committed.value


def joins_with_anything(durable: int | None, need: int) -> bool:
    return durable is not None


def only_recorded(this: SyncStateSet) -> tuple[frozenset[Member], ...]:
    return (this.record.members,)


def only_proposed(this: SyncStateSet) -> tuple[frozenset[Member], ...]:
    return ((this.proposed or this.record).members,)


def equal_as_far_as_both_go(
    mine: EpochTable, my_end: int, masters: EpochTable, masters_end: int
) -> int:
    return min(my_end, masters_end)


def all_is_proven(checksums: Sequence[Checksum], view: MasterView, crc: object) -> int:
    return min(checksums[-1].end, view.end_offset)


def no_proof(*_: Any) -> int:
    return 0


def cut_what_is_confirmed(hello: Any, view: MasterView, point: int) -> Any:
    answer = handshake._answer(
        handshake.HelloAction.TRUNCATE,
        view,
        max(point, hello.min_offset),
        hello,
        "",
    )
    return handshake.Verdict(answer)


def follow_any_answer(answer: Any, me: Any) -> None:
    return None


def same_epoch_again(table: EpochTable, state: HaState) -> int:
    return max(1, 0 if table.last is None else table.last.epoch)


def keep_epoch_entry(this: FakeStore, epoch: int) -> None:
    if this.epochs.table.last is None:
        this.disk.epochs = EpochTable().append(epoch, this.log.wrote.value)
    this.master = True


def one_is_enough(required: int, lag_s: float, rejoin_s: float, dead_s: float) -> SetRules:
    return SetRules(1, lag_s, rejoin_s, dead_s)


def any_disk_is_the_same(this: Cluster) -> str:
    return "one"


NO_PROOF: Patch = (store, "log_crc", no_proof)
NO_MASTER_PROOF: Patch = (Cluster, "proof_crc", no_proof)


def nothing_is_ever_lost(*_: Any) -> bool:
    return False


def nobody_has_what_is_missing(*_: Any) -> bool:
    return True


def silent_while_it_prepares(this: SlaveSession, now: float) -> list[SlaveAction]:
    return [] if this.state is SlaveState.PREPARING else TICK(this, now)


def no_sign_of_life(*_: Any) -> None:
    return None


def no_followed_disk(hello: Any, view: MasterView) -> Any:
    return DECIDE(replace(hello, master_id=""), view)


DECIDE = handshake.decide
TICK = SlaveSession.tick
MUTATIONS: dict[str, list[Patch]] = {
    "the second slowest member is enough": [(confirm_offset, "lowest", second_lowest)],
    "acks count in any epoch and incarnation": [(confirm_offset, "counts", every_ack_counts)],
    "a slave acknowledges before its fsync": [(FakeStore, "flush", flush_without_fsync)],
    "the master counts what it has not fsynced": [(term, "own_position", written_is_enough)],
    "a member joins without the confirmed bytes": [
        (sync_state_set, "may_join", joins_with_anything)
    ],
    "a joining member counts only when recorded": [(SyncStateSet, "in_force", only_recorded)],
    "a leaving member is not waited for any more": [(SyncStateSet, "in_force", only_proposed)],
    "equal length is equal history": [
        (EpochTable, "find_consistent_point", equal_as_far_as_both_go),
        NO_PROOF,
        NO_MASTER_PROOF,
    ],
    "a log without epochs is trusted": [
        (handshake, "proven_prefix", all_is_proven),
        ("sim.ha_cluster", "proven_prefix", all_is_proven),
        NO_PROOF,
        NO_MASTER_PROOF,
    ],
    "no proof of bytes": [NO_PROOF, NO_MASTER_PROOF],
    "confirmed bytes may be cut": [
        (handshake, "_lost", cut_what_is_confirmed),
        ("tandemlog_server.ha.slave.session", "check_answer", follow_any_answer),
    ],
    "a restart goes on in the same epoch": [
        (term, "next_epoch", same_epoch_again),
        (FakeStore, "become_master", keep_epoch_entry),
        NO_PROOF,
        NO_MASTER_PROOF,
    ],
    "one member is enough": [
        ("tandemlog_server.ha.master.master_group", "SetRules", one_is_enough)
    ],
    "a master without fsync trusts its log after a power cut": [
        (term, "may_have_lost", nothing_is_ever_lost)
    ],
    "a master on an empty disk is followed": [
        ("tandemlog_server.ha.master.session", "decide", no_followed_disk)
    ],
    "the set grows while acknowledged bytes are missing": [
        (sync_state_set, "all_is_here", nobody_has_what_is_missing)
    ],
    "a slave that prepares is silent": [(SlaveSession, "tick", silent_while_it_prepares)],
    "a master that compares is silent": [(Cluster, "show_life", no_sign_of_life)],
    "a lost disk keeps its name": [(Cluster, "incarnation", any_disk_is_the_same)],
}
