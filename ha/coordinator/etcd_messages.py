"""Between the values of the seam and the messages of etcd's API. Pure."""

from collections.abc import Sequence

from tandemlog.v1 import coordinator_pb2 as pb

from .values import (
    Change,
    Compare,
    Delete,
    Found,
    Get,
    KeyRange,
    KeyValue,
    Listing,
    Operation,
    OperationResult,
    Put,
    Relation,
    Subject,
    Txn,
    TxnResult,
)

_RELATIONS = {
    Relation.EQUAL: pb.Compare.EQUAL,
    Relation.NOT_EQUAL: pb.Compare.NOT_EQUAL,
    Relation.GREATER: pb.Compare.GREATER,
    Relation.LESS: pb.Compare.LESS,
}
_TARGETS = {
    Subject.VERSION: pb.Compare.VERSION,
    Subject.CREATE_REVISION: pb.Compare.CREATE,
    Subject.MOD_REVISION: pb.Compare.MOD,
    Subject.VALUE: pb.Compare.VALUE,
    Subject.LEASE: pb.Compare.LEASE,
}


def range_request(keys: KeyRange) -> pb.RangeRequest:
    """A linearizable read of the present."""
    return pb.RangeRequest(key=keys.start, range_end=keys.end)


def txn_request(txn: Txn) -> pb.TxnRequest:
    return pb.TxnRequest(
        compare=[_compare(each) for each in txn.compares],
        success=[_operation(each) for each in txn.then],
        failure=[_operation(each) for each in txn.otherwise],
    )


def _compare(compare: Compare) -> pb.Compare:
    encoded = pb.Compare(
        key=compare.key,
        target=_TARGETS[compare.subject],
        result=_RELATIONS[compare.relation],
    )
    setattr(encoded, compare.subject.value, compare.operand)
    return encoded


def _operation(operation: Operation) -> pb.RequestOp:
    match operation:
        case Put(key, value, lease):
            return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))
        case Delete(keys):
            request = pb.DeleteRangeRequest(key=keys.start, range_end=keys.end)
            return pb.RequestOp(request_delete_range=request)
        case Get(keys):
            return pb.RequestOp(request_range=range_request(keys))


def key_value(kv: pb.KeyValue) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def found(answer: pb.RangeResponse) -> Found:
    """The answer for a range of one key."""
    return Found(answer.header.revision, key_value(answer.kvs[0]) if answer.kvs else None)


def listing(answer: pb.RangeResponse) -> Listing:
    return Listing(answer.header.revision, tuple(key_value(each) for each in answer.kvs))


def txn_result(answer: pb.TxnResponse) -> TxnResult:
    return TxnResult(
        answer.succeeded,
        answer.header.revision,
        tuple(_operation_result(each) for each in answer.responses),
    )


def _operation_result(response: pb.ResponseOp) -> OperationResult:
    return OperationResult(
        found=tuple(key_value(each) for each in response.response_range.kvs),
        deleted=response.response_delete_range.deleted,
    )


def watch_request(keys: KeyRange, from_revision: int) -> pb.WatchRequest:
    return pb.WatchRequest(
        create_request=pb.WatchCreateRequest(
            key=keys.start, range_end=keys.end, start_revision=from_revision
        )
    )


def changes(events: Sequence[pb.Event]) -> tuple[Change, ...]:
    return tuple(
        Change(key_value(each.kv), deleted=each.type == pb.Event.DELETE) for each in events
    )
