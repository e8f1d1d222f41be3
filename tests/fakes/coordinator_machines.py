"""State machines of the embedded coordinator without a disk, and requests for them."""

import itertools
from dataclasses import replace

from node.coordinator.limits import Limits
from node.coordinator.machine import Changes, Machine, Saved
from node.coordinator.versions import Row  # noqa: TC001 - in an annotation that runs
from tandemlog.v1 import coordinator_pb2 as pb

EMPTY = Saved(cluster_id=7, member_id=8, term=1)


def new_machine(saved: Saved = EMPTY, now: float = 0.0, **limits: int) -> Machine:
    """The ids of its leases are 1001, 1002, …"""
    ids = itertools.count(1001)
    return Machine(saved, now, lambda: next(ids), Limits(**limits))


class MemoryDisk:
    """What a disk would hold, as node/coordinator/database.py keeps it."""

    def __init__(self, saved: Saved = EMPTY) -> None:
        self.saved = saved

    def commit(self, changes: Changes) -> None:
        rows: dict[tuple[int, int], Row] = {
            (row.revision, row.sub): row for row in (*self.saved.rows, *changes.rows)
        }
        for row in changes.gone:
            del rows[row.revision, row.sub]
        leases = dict(self.saved.leases)
        for lease, ttl_s in changes.leases.items():
            if ttl_s is None:
                leases.pop(lease, None)
            else:
                leases[lease] = ttl_s
        self.saved = replace(
            self.saved,
            revision=changes.revision,
            compacted=changes.compacted or self.saved.compacted,
            rows=tuple(rows[place] for place in sorted(rows)),
            leases=leases,
        )


def put(key: bytes, value: bytes = b"v", lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def get(key: bytes, end: bytes = b"", **more: int) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, **more))


def txn(*operations: pb.RequestOp) -> pb.TxnRequest:
    return pb.TxnRequest(success=operations)
