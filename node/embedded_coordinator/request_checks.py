"""Whether a request may be carried out, before anything of it is. Pure. Raises RefusedError."""

from collections.abc import Sequence
from typing import Any

from tandemlog.v1 import coordinator_pb2 as pb

from .coordinator_refusals import RefusedError, duplicate_key, no_key, not_supported, over
from .key_versions import in_range
from .limits import Limits


def check_put(request: pb.PutRequest, limits: Limits) -> None:
    if not request.key:
        raise no_key()
    if request.ignore_value or request.ignore_lease:
        raise not_supported("ignore_value and ignore_lease")
    check_key(request.key, limits)
    if len(request.value) > limits.value_bytes:
        raise over("bytes of a value", len(request.value), limits.value_bytes)


def check_key(key: bytes, limits: Limits) -> None:
    if len(key) > limits.key_bytes:
        raise over("bytes of a key", len(key), limits.key_bytes)


def check_range(request: pb.RangeRequest) -> None:
    if not request.key:
        raise no_key()
    if request.limit < 0 or request.revision < 0:
        raise RefusedError("INVALID_ARGUMENT", "coordinator: limit and revision are not negative")
    check_enum("sort_order", request.sort_order, pb.RangeRequest.SortOrder)
    check_enum("sort_target", request.sort_target, pb.RangeRequest.SortTarget)


def check_enum(field: str, value: int, kind: Any) -> None:
    """proto3 gives on any number; one that the enum does not have means nothing here."""
    if value not in kind.values():
        raise RefusedError("INVALID_ARGUMENT", f"coordinator: {field}: {value} is not known")


def check_watch(request: pb.WatchCreateRequest) -> None:
    if not request.key:
        raise no_key()
    if request.progress_notify:
        raise not_supported("progress_notify; ask for the progress")
    if request.start_revision < 0 or request.watch_id < 0:
        raise RefusedError(
            "INVALID_ARGUMENT", "coordinator: start_revision and watch_id are not negative"
        )
    for each in request.filters:
        check_enum("filters", each, pb.WatchCreateRequest.FilterType)


def check_txn(request: pb.TxnRequest, limits: Limits) -> None:
    """Of the whole transaction, whichever branch is taken."""
    for part in (request.compare, request.success, request.failure):
        if len(part) > limits.operations:
            raise RefusedError("INVALID_ARGUMENT", "etcdserver: too many operations in txn request")
    for compare in request.compare:
        if not compare.key:
            raise no_key()
        check_enum("result", compare.result, pb.Compare.CompareResult)
        check_enum("target", compare.target, pb.Compare.CompareTarget)
    for branch in (request.success, request.failure):
        _check_branch(branch, limits)


def _check_branch(branch: Sequence[pb.RequestOp], limits: Limits) -> None:
    puts: set[bytes] = set()
    for each in branch:
        match each.WhichOneof("request"):
            case "request_put":
                check_put(each.request_put, limits)
                if each.request_put.key in puts:
                    raise duplicate_key()
                puts.add(each.request_put.key)
            case "request_range":
                check_range(each.request_range)
            case "request_delete_range":
                if not each.request_delete_range.key:
                    raise no_key()
            case "request_txn":
                raise not_supported("a transaction inside a transaction")
            case _:
                raise RefusedError("INVALID_ARGUMENT", "coordinator: an operation is empty")
    for each in branch:
        deletion = each.request_delete_range
        if any(in_range(key, deletion.key, deletion.range_end) for key in puts):
            raise duplicate_key()
