"""Whether a comparison of a transaction holds. Pure."""

from tandemlog.v1 import coordinator_pb2 as pb

from .versions import Row, Versions


def holds(compare: pb.Compare, versions: Versions) -> bool:
    """For every key of its range. An absent key has zeros, and no value that anything equals."""
    rows = versions.range(compare.key, compare.range_end)
    if rows:
        return all(_related(compare, row) for row in rows)
    if compare.target == pb.Compare.VALUE:
        return False
    return _related(compare, Row(0, 0, compare.key, b"", 0, 0, 0))


def _related(compare: pb.Compare, row: Row) -> bool:
    held: int | bytes
    given: int | bytes
    match compare.target:
        case pb.Compare.VERSION:
            held, given = row.version, compare.version
        case pb.Compare.CREATE:
            held, given = row.create_revision, compare.create_revision
        case pb.Compare.MOD:
            held, given = row.revision, compare.mod_revision
        case pb.Compare.LEASE:
            held, given = row.lease, compare.lease
        case _:
            return _in_relation(compare.result, _order_of_bytes(row.value, compare.value))
    return _in_relation(compare.result, (held > given) - (held < given))


def _order_of_bytes(held: bytes, given: bytes) -> int:
    return (held > given) - (held < given)


def _in_relation(result: "pb.Compare.CompareResult.ValueType", order: int) -> bool:
    match result:
        case pb.Compare.EQUAL:
            return order == 0
        case pb.Compare.NOT_EQUAL:
            return order != 0
        case pb.Compare.GREATER:
            return order > 0
        case _:
            return order < 0
