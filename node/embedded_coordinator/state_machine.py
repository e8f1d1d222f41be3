"""The embedded coordinator's state machine: a request and `now` in, the answer out. Pure.

    request ─▶ check, raise RefusedError ─▶ apply in memory ─▶ answer
                                                 │
                                                 └─▶ changes, to be taken with `pop_changes`

Each request is applied at once and whole, so one after the other is one linearizable store. The
caller makes the changes durable before it sends the answer; answers to reads wait in the same way
for what they saw (journal.py). If that fails the process ends, and no client has heard of a change
that is not on the disk.

The time comes with every request: a lease whose time is over ends before the request is checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter, eq, gt, lt, ne
from typing import Any

from tandemlog.v1 import coordinator_pb2 as pb

from .coordinator_refusals import (
    RefusedError,
    compacted,
    full,
    future_revision,
    lease_exists,
    no_key,
    no_lease,
    over,
)
from .key_versions import KeyVersions, Row
from .lease_table import LeaseTable
from .limits import Limits
from .request_checks import check_put, check_range, check_txn

_SORTED_BY = {
    pb.RangeRequest.KEY: attrgetter("key"),
    pb.RangeRequest.VERSION: attrgetter("version"),
    pb.RangeRequest.CREATE: attrgetter("create_revision"),
    pb.RangeRequest.MOD: attrgetter("revision"),
    pb.RangeRequest.VALUE: attrgetter("value"),
}
_COMPARED = {
    pb.Compare.VERSION: ("version", "version"),
    pb.Compare.CREATE: ("create_revision", "create_revision"),
    pb.Compare.MOD: ("revision", "mod_revision"),
    pb.Compare.VALUE: ("value", "value"),
    pb.Compare.LEASE: ("lease", "lease"),
}
"""The field of a row that a comparison is about, and its field for the other side."""
_RELATIONS: dict[int, Callable[[Any, Any], bool]] = {
    pb.Compare.EQUAL: eq,
    pb.Compare.NOT_EQUAL: ne,
    pb.Compare.GREATER: gt,
    pb.Compare.LESS: lt,
}


@dataclass(frozen=True, slots=True)
class Saved:
    """What the disk holds. `term` counts the starts, so that clients notice a restored backup."""

    cluster_id: int
    member_id: int
    term: int
    revision: int = 1
    compacted: int = 0
    rows: tuple[Row, ...] = ()
    leases: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Changes:
    """What is to be made durable, in one piece. A lease of None is gone."""

    revision: int = 0
    compacted: int = 0
    rows: list[Row] = field(default_factory=list)
    gone: list[Row] = field(default_factory=list)
    leases: dict[int, int | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the keys and values in it."""
        return sum(row.size for row in self.rows)

    @property
    def empty(self) -> bool:
        return not (self.rows or self.gone or self.leases or self.compacted)


class StateMachine:
    """See the module. `new_id` gives the ids of leases: at random, above 0, never one twice."""

    def __init__(
        self, saved: Saved, now: float, new_id: Callable[[], int], limits: Limits | None = None
    ) -> None:
        self.saved = saved
        self.limits = limits or Limits()
        self.versions = KeyVersions(saved.revision, saved.compacted)
        self.leases = LeaseTable(saved.leases, now)
        self._new_id = new_id
        self._changes = Changes()
        self._sub = 0
        for row in saved.rows:
            self.versions.add(row)
        for row in self.versions.range(b"\0", b"\0"):
            self.leases.move(row.key, 0, row.lease)

    @property
    def revision(self) -> int:
        return self.versions.revision

    def header(self, revision: int | None = None) -> pb.ResponseHeader:
        """That of an answer given now."""
        return pb.ResponseHeader(
            cluster_id=self.saved.cluster_id,
            member_id=self.saved.member_id,
            revision=self.revision if revision is None else revision,
            raft_term=self.saved.term,
        )

    def pop_changes(self) -> Changes:
        """What changed since the last call."""
        changes, self._changes = self._changes, Changes()
        changes.revision = self.revision
        return changes

    @property
    def untouched(self) -> bool:
        """Whether nothing has changed since the changes were taken, not by half either."""
        return self._changes.empty and not self._sub

    def advance(self, now: float) -> None:
        """It is `now`: end the leases whose time is over, each at a revision of its own."""
        for lease in self.leases.expired(now):
            self._end_lease(lease)

    # ---- KV

    def range(self, request: pb.RangeRequest, now: float) -> pb.RangeResponse:
        check_range(request)
        self.advance(now)
        self._check_answer([request])
        return self._range(request)

    def put(self, request: pb.PutRequest, now: float) -> pb.PutResponse:
        check_put(request, self.limits)
        self.advance(now)
        self._check_room([request])
        answer = self._put(request, self.revision + 1)
        self._written()
        answer.header.CopyFrom(self.header())
        return answer

    def delete_range(self, request: pb.DeleteRangeRequest, now: float) -> pb.DeleteRangeResponse:
        if not request.key:
            raise no_key()
        self.advance(now)
        answer = self._delete(request, self.revision + 1)
        self._written()
        answer.header.CopyFrom(self.header())
        return answer

    def txn(self, request: pb.TxnRequest, now: float) -> pb.TxnResponse:
        check_txn(request, self.limits)
        self.advance(now)
        self._check_width(request)
        succeeded = all(_holds(each, self.versions) for each in request.compare)
        branch = request.success if succeeded else request.failure
        self._check_room([each.request_put for each in branch if each.HasField("request_put")])
        self._check_answer(
            [each.request_range for each in branch if each.HasField("request_range")],
            written=sum(each.request_put.ByteSize() for each in branch),
        )
        revision = self.revision + 1
        responses = [self._operation(each, revision) for each in branch]
        self._written()
        return pb.TxnResponse(header=self.header(), succeeded=succeeded, responses=responses)

    def compact(self, request: pb.CompactionRequest, now: float) -> pb.CompactionResponse:
        self.advance(now)
        if request.revision <= self.versions.compacted:
            raise compacted()
        if request.revision > self.revision:
            raise future_revision()
        self._compact(request.revision)
        return pb.CompactionResponse(header=self.header())

    # ---- Lease

    def lease_grant(self, request: pb.LeaseGrantRequest, now: float) -> pb.LeaseGrantResponse:
        self.advance(now)
        ttl_s = max(1, request.TTL)
        if ttl_s > self.limits.lease_ttl_s:
            raise over("seconds of a lease", ttl_s, self.limits.lease_ttl_s)
        if request.ID < 0:
            raise RefusedError("INVALID_ARGUMENT", "coordinator: the id of a lease is not negative")
        lease = request.ID or self._new_id()
        if lease in self.leases.table:
            raise lease_exists()
        if len(self.leases.table) >= self.limits.leases:
            raise full("leases", len(self.leases.table), self.limits.leases)
        self.leases.grant(lease, ttl_s, now)
        self._changes.leases[lease] = ttl_s
        return pb.LeaseGrantResponse(header=self.header(), ID=lease, TTL=ttl_s)

    def lease_revoke(self, request: pb.LeaseRevokeRequest, now: float) -> pb.LeaseRevokeResponse:
        self.advance(now)
        if request.ID not in self.leases.table:
            raise no_lease()
        self._end_lease(request.ID)
        return pb.LeaseRevokeResponse(header=self.header())

    def lease_keep_alive(
        self, request: pb.LeaseKeepAliveRequest, now: float
    ) -> pb.LeaseKeepAliveResponse:
        self.advance(now)
        ttl_s = self.leases.renew(request.ID, now)
        return pb.LeaseKeepAliveResponse(header=self.header(), ID=request.ID, TTL=ttl_s)

    def lease_time_to_live(
        self, request: pb.LeaseTimeToLiveRequest, now: float
    ) -> pb.LeaseTimeToLiveResponse:
        self.advance(now)
        lease = self.leases.table.get(request.ID)
        answer = pb.LeaseTimeToLiveResponse(header=self.header(), ID=request.ID, TTL=-1)
        if lease is not None:
            size = sum(map(len, lease.keys)) if request.keys else 0
            if size > self.limits.answer_bytes:
                raise full("bytes of an answer, ask without keys", size, self.limits.answer_bytes)
            answer.TTL = int(lease.deadline - now)
            answer.grantedTTL = lease.ttl_s
            answer.keys.extend(sorted(lease.keys) if request.keys else ())
        return answer

    def lease_leases(self, _: pb.LeaseLeasesRequest, now: float) -> pb.LeaseLeasesResponse:
        self.advance(now)
        leases = [pb.LeaseStatus(ID=each) for each in sorted(self.leases.table)]
        return pb.LeaseLeasesResponse(header=self.header(), leases=leases)

    # ---- carrying out

    def _operation(self, operation: pb.RequestOp, revision: int) -> pb.ResponseOp:
        if operation.HasField("request_put"):
            return pb.ResponseOp(response_put=self._put(operation.request_put, revision))
        if operation.HasField("request_delete_range"):
            deleted = self._delete(operation.request_delete_range, revision)
            return pb.ResponseOp(response_delete_range=deleted)
        return pb.ResponseOp(response_range=self._range(operation.request_range))

    def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        rows = self.versions.range(request.key, request.range_end, request.revision)
        rows = [row for row in rows if _asked_for(row, request)]
        if request.sort_order or request.sort_target:
            down = request.sort_order == pb.RangeRequest.DESCEND
            rows.sort(key=_SORTED_BY[request.sort_target], reverse=down)
        answer = pb.RangeResponse(header=self.header(), count=len(rows))
        if request.count_only:
            return answer
        if 0 < request.limit < len(rows):
            rows, answer.more = rows[: request.limit], True
        answer.kvs.extend(key_value(row, keys_only=request.keys_only) for row in rows)
        return answer

    def _put(self, request: pb.PutRequest, revision: int) -> pb.PutResponse:
        old = self.versions.now(request.key)
        self._add(
            Row(
                revision,
                self._sub,
                request.key,
                request.value,
                old.create_revision if old else revision,
                old.version + 1 if old else 1,
                request.lease,
            )
        )
        self.leases.move(request.key, old.lease if old else 0, request.lease)
        shown = request.prev_kv and old is not None
        return pb.PutResponse(prev_kv=key_value(old) if shown and old else None)

    def _delete(self, request: pb.DeleteRangeRequest, revision: int) -> pb.DeleteRangeResponse:
        rows = self.versions.range(request.key, request.range_end)
        for row in rows:
            self._remove(row, revision)
        shown = [key_value(row) for row in rows] if request.prev_kv else []
        return pb.DeleteRangeResponse(deleted=len(rows), prev_kvs=shown)

    def _end_lease(self, lease: int) -> None:
        revision = self.revision + 1
        for key in self.leases.drop(lease):
            row = self.versions.now(key)
            if row is not None:
                self._remove(row, revision)
        self._changes.leases[lease] = None
        self._written()

    def _remove(self, row: Row, revision: int) -> None:
        self._add(Row(revision, self._sub, row.key, b"", 0, 0, 0))
        self.leases.move(row.key, row.lease, 0)

    def _add(self, row: Row) -> None:
        self.versions.add(row)
        self._changes.rows.append(row)
        self._sub += 1

    def _written(self) -> None:
        """The end of a revision: history is kept within its limits."""
        self._sub = 0
        versions, limits = self.versions, self.limits
        while versions.log and (
            len(versions.log) > limits.history_rows or versions.log_bytes > limits.history_bytes
        ):
            self._compact(versions.log[len(versions.log) // 2].revision)

    def _compact(self, revision: int) -> None:
        self._changes.gone += self.versions.compact(revision)
        self._changes.compacted = revision

    # ---- what needs the state to be checked

    def _check_room(self, puts: Sequence[pb.PutRequest]) -> None:
        for each in puts:
            if each.lease and each.lease not in self.leases.table:
                raise no_lease()
        new = sum(self.versions.now(each.key) is None for each in puts)
        if new and self.versions.live + new > self.limits.keys:
            raise full("keys", self.versions.live + new, self.limits.keys)
        size = self.versions.live_bytes + sum(len(each.key) + len(each.value) for each in puts)
        if puts and size > self.limits.live_bytes:
            raise full("bytes of all keys and values", size, self.limits.live_bytes)

    def _check_width(self, request: pb.TxnRequest) -> None:
        width = sum(self.versions.width(each.key, each.range_end) for each in request.compare)
        for each in (*request.success, *request.failure):
            for name in ("request_range", "request_delete_range"):
                if each.HasField(name):
                    part = getattr(each, name)
                    width += self.versions.width(part.key, part.range_end)
        if width > self.limits.txn_keys:
            raise over("keys that a transaction goes through", width, self.limits.txn_keys)

    def _check_answer(self, reads: Sequence[pb.RangeRequest], written: int = 0) -> None:
        """Before anything is changed. `written`: bytes that the same transaction puts, each of
        which may be in each of its reads."""
        size = written * len(reads)
        for each in reads:
            self._check_revision(each)
            if each.count_only:
                continue
            rows = self.versions.range(each.key, each.range_end, each.revision)
            sizes = [len(row.key) if each.keys_only else row.size for row in rows]
            size += sum(nlargest(each.limit, sizes) if each.limit else sizes)
        if size > self.limits.answer_bytes:
            raise full("bytes of an answer, ask for fewer keys", size, self.limits.answer_bytes)

    def _check_revision(self, request: pb.RangeRequest) -> None:
        if request.revision > self.revision:
            raise future_revision()
        if 0 < request.revision < self.versions.compacted:
            raise compacted()


def _asked_for(row: Row, request: pb.RangeRequest) -> bool:
    return (
        row.revision >= request.min_mod_revision
        and row.create_revision >= request.min_create_revision
        and (not request.max_mod_revision or row.revision <= request.max_mod_revision)
        and (not request.max_create_revision or row.create_revision <= request.max_create_revision)
    )


def key_value(row: Row, *, keys_only: bool = False) -> pb.KeyValue:
    """A row as clients get it."""
    return pb.KeyValue(
        key=row.key,
        create_revision=row.create_revision,
        mod_revision=row.revision,
        version=row.version,
        value=b"" if keys_only else row.value,
        lease=row.lease,
    )


def _holds(compare: pb.Compare, versions: KeyVersions) -> bool:
    """Whether a comparison holds, for every key of its range. An absent key has zeros, and no value
    that anything equals."""
    rows = versions.range(compare.key, compare.range_end)
    if rows:
        return all(_related(compare, row) for row in rows)
    if compare.target == pb.Compare.VALUE:
        return False
    return _related(compare, Row(0, 0, compare.key, b"", 0, 0, 0))


def _related(compare: pb.Compare, row: Row) -> bool:
    of_row, of_compare = _COMPARED[compare.target]
    related = _RELATIONS[compare.result]
    return bool(related(getattr(row, of_row), getattr(compare, of_compare)))
