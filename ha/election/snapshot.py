"""The cluster's keys as they were at one revision, and how changes make the next one of it. Pure.

A snapshot may be old: the node that acts on it sends a transaction that compares the revision it
has seen. A value that cannot be read is a fault of the snapshot if it is the record or the leader;
other keys of that kind are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..coordinator.values import KeyValue, Listing, WatchUpdate
from .key_values import (
    ClusterRecord,
    ConfirmedValue,
    LeaderValue,
    MemberValue,
    RequestValue,
    RosterValue,
    SettingsValue,
    TermValue,
    decode,
    decode_record,
)
from .keys import ClusterKeys

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """See the module. `*_revision` is the revision of the last change of that key, 0 for a key
    that is not there. `fault` names the key that cannot be read."""

    revision: int = 0
    uuid: str = ""
    record: ClusterRecord | None = None
    record_revision: int = 0
    leader: LeaderValue | None = None
    leader_revision: int = 0
    members: Mapping[str, MemberValue] = field(default_factory=dict)
    roster: Mapping[str, RosterValue] = field(default_factory=dict)
    confirmed: ConfirmedValue | None = None
    confirmed_revision: int = 0
    settings: SettingsValue = field(default_factory=SettingsValue)
    request: RequestValue | None = None
    request_revision: int = 0
    history: tuple[TermValue, ...] = ()
    fault: str = ""

    def removed(self, node_id: str) -> bool:
        """Whether an operator has removed this node from the cluster."""
        entry = self.roster.get(node_id)
        return entry is not None and entry.removed


class SnapshotBuilder:
    """Holds the keys; `apply` takes listings and changes in any order that a watch gives."""

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        self._kvs: dict[bytes, KeyValue] = {}
        self._revision = 0
        self.snapshot = Snapshot()

    def apply(self, update: WatchUpdate) -> Snapshot:
        """The snapshot with `update`; an update that is older than the snapshot changes nothing."""
        if update.revision < self._revision:
            return self.snapshot
        if isinstance(update, Listing):
            self._kvs = {kv.key: kv for kv in update.kvs}
        else:
            for change in update.changes:
                kv = change.kv
                before = self._kvs.get(kv.key)
                if before is not None and before.mod_revision >= kv.mod_revision:
                    continue
                if change.deleted:
                    self._kvs.pop(kv.key, None)
                else:
                    self._kvs[kv.key] = kv
        self._revision = update.revision
        self.snapshot = self._read()
        return self.snapshot

    def revision_of(self, key: bytes) -> int:
        """Of the last change of `key` that is in the snapshot; 0 if it is not there."""
        kv = self._kvs.get(key)
        return 0 if kv is None else kv.mod_revision

    def _read(self) -> Snapshot:
        keys, kvs = self._keys, self._kvs
        snapshot = Snapshot(
            revision=self._revision,
            members={
                member.node_id: replace(member, lease=kv.lease)
                for kv in self._below(keys.members)
                if (member := _readable(MemberValue, kv)) is not None
            },
            roster={
                kv.key[len(keys.roster) :].decode(errors="replace"): entry
                for kv in self._below(keys.roster)
                if (entry := _readable(RosterValue, kv)) is not None
            },
            history=tuple(
                term
                for kv in self._below(keys.history)
                if (term := _readable(TermValue, kv)) is not None
            ),
        )
        uuid, settings = kvs.get(keys.uuid), kvs.get(keys.settings)
        if uuid is not None:
            snapshot = replace(snapshot, uuid=uuid.value.decode(errors="replace"))
        if settings is not None and (value := _readable(SettingsValue, settings)) is not None:
            snapshot = replace(snapshot, settings=value)
        confirmed = kvs.get(keys.confirmed)
        if confirmed is not None:
            snapshot = replace(
                snapshot,
                confirmed=_readable(ConfirmedValue, confirmed),
                confirmed_revision=confirmed.mod_revision,
            )
        request = kvs.get(keys.request)
        if request is not None:
            snapshot = replace(
                snapshot,
                request=_readable(RequestValue, request),
                request_revision=request.mod_revision,
            )
        return self._with_record(snapshot)

    def _with_record(self, snapshot: Snapshot) -> Snapshot:
        state, leader = self._kvs.get(self._keys.state), self._kvs.get(self._keys.leader)
        try:
            if state is not None:
                record = decode_record(state.value)
                snapshot = replace(snapshot, record=record, record_revision=state.mod_revision)
        except ValueError as error:
            return replace(snapshot, fault=f"{self._keys.state.decode()} cannot be read: {error}")
        if leader is not None:
            value = _readable(LeaderValue, leader)
            if value is None:
                return replace(snapshot, fault=f"{self._keys.leader.decode()} cannot be read")
            return replace(snapshot, leader=value, leader_revision=leader.mod_revision)
        return snapshot

    def _below(self, prefix: bytes) -> Iterable[KeyValue]:
        return (kv for key, kv in sorted(self._kvs.items()) if key.startswith(prefix))


def _readable(kind: type[ValueT], kv: KeyValue) -> ValueT | None:
    try:
        return decode(kind, kv.value)
    except ValueError:
        return None
