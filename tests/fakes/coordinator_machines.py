"""State machines of the embedded coordinator without a disk, and requests for them."""

import itertools
from dataclasses import replace
from typing import Any

from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.node.embedded_coordinator.key_versions import Row  # noqa: TC001 - in an annotation that runs
from tandemlog_server.node.embedded_coordinator.limits import Limits
from tandemlog_server.node.embedded_coordinator.state_machine import Changes, Saved, StateMachine

EMPTY = Saved(cluster_id=7, member_id=8, term=1)


def new_machine(saved: Saved = EMPTY, now: float = 0.0, **limits: int) -> StateMachine:
    """The ids of its leases are 1001, 1002, …"""
    ids = itertools.count(1001)
    return StateMachine(saved, now, lambda: next(ids), Limits(**limits))


class MemoryDisk:
    """What a disk would hold, as node/embedded_coordinator/database.py keeps it."""

    def __init__(self, saved: Saved = EMPTY) -> None:
        self._saved = saved
        self._rows: dict[tuple[int, int], Row] = {}
        self._rows.update(((row.revision, row.sub), row) for row in saved.rows)
        self._leases = dict(saved.leases)

    @property
    def saved(self) -> Saved:
        rows = tuple(self._rows[place] for place in sorted(self._rows))
        return replace(self._saved, rows=rows, leases=dict(self._leases))

    def commit(self, changes: Changes) -> None:
        known = changes.revision == self._saved.revision
        if known and not (changes.rows or changes.gone or changes.leases or changes.compacted):
            return
        self._rows.update(((row.revision, row.sub), row) for row in changes.rows)
        for row in changes.gone:
            del self._rows[row.revision, row.sub]
        for lease, ttl_s in changes.leases.items():
            if ttl_s is None:
                self._leases.pop(lease, None)
            else:
                self._leases[lease] = ttl_s
        self._saved = replace(
            self._saved,
            revision=changes.revision,
            compacted=changes.compacted or self._saved.compacted,
        )


def put(key: bytes, value: bytes = b"v", lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def get(key: bytes, end: bytes = b"", **more: Any) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, **more))


def txn(*operations: pb.RequestOp) -> pb.TxnRequest:
    return pb.TxnRequest(success=operations)
