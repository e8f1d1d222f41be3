"""Requests that are not carried out, with the gRPC code and text of the answer. Pure.

Texts that begin with `etcdserver:` are etcd's own, which its clients know; those that begin with
`coordinator:` are ours: mostly limits. Both say that nothing was changed.
"""


class RefusedError(Exception):
    """`code` is the name of a grpc.StatusCode. Nothing was changed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def no_key() -> RefusedError:
    return RefusedError("INVALID_ARGUMENT", "etcdserver: key is not provided")


def duplicate_key() -> RefusedError:
    return RefusedError("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")


def compacted() -> RefusedError:
    return RefusedError("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")


def future_revision() -> RefusedError:
    return RefusedError("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")


def no_lease() -> RefusedError:
    return RefusedError("NOT_FOUND", "etcdserver: requested lease not found")


def lease_exists() -> RefusedError:
    return RefusedError("FAILED_PRECONDITION", "etcdserver: lease already exists")


def not_supported(what: str) -> RefusedError:
    return RefusedError(
        "INVALID_ARGUMENT", f"coordinator: {what}: not supported by the embedded coordinator"
    )


def over(what: str, actual: int, limit: int) -> RefusedError:
    """A limit of one request."""
    return RefusedError("INVALID_ARGUMENT", f"coordinator: {what}: {actual}, the limit is {limit}")


def busy(what: str, actual: int, limit: int) -> RefusedError:
    """A limit that is free again by itself: try again later."""
    return RefusedError("UNAVAILABLE", f"coordinator: {what}: {actual}, the limit is {limit}")


def full(what: str, actual: int, limit: int) -> RefusedError:
    """A limit of the whole coordinator."""
    return RefusedError(
        "RESOURCE_EXHAUSTED", f"coordinator: {what}: {actual}, the limit is {limit}"
    )
