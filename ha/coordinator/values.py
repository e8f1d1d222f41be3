"""What is asked of a coordinator, and what it answers: immutable values without a wire format.

Keys and values are bytes. Every change of the store has a revision, a number that only grows; a
transaction makes at most one. A key remembers the revision that created it, the one that changed it
last, and how many puts it has had since it was created (its version; 0 where it is absent).

A range of keys is `start..end`, without `end`; `with_prefix` is that of all keys with a prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as it is, or was, at some revision. `lease` is 0 where it hangs on none."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys `start..end`, or `start` alone where `end` is empty."""

    start: bytes
    end: bytes = b""

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key < self.end if self.end else key == self.start


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix`. Raises ValueError for one that
    has no end: an empty one, or nothing but 0xff."""
    stem = prefix.rstrip(b"\xff")
    if not stem:
        raise ValueError(f"no range holds exactly the keys with the prefix {prefix!r}")
    return stem[:-1] + bytes([stem[-1] + 1])


def with_prefix(prefix: bytes) -> KeyRange:
    """All keys that begin with `prefix`. Raises ValueError as `prefix_end` does."""
    return KeyRange(prefix, prefix_end(prefix))


# ---- transactions


class Subject(Enum):
    """What of a key is compared. An absent key has 0 for each number, and no value: a comparison
    of its value never holds."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"
    LEASE = "lease"


class Relation(Enum):
    """How what the store holds must relate to the operand."""

    EQUAL = "="
    NOT_EQUAL = "!="
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True)
class Compare:
    """`subject` of `key` stands in `relation` to `operand`: bytes for VALUE, else a number."""

    key: bytes
    subject: Subject
    relation: Relation
    operand: int | bytes

    def __post_init__(self) -> None:
        if isinstance(self.operand, bytes) is not (self.subject is Subject.VALUE):
            raise ValueError(f"{self.subject.value} is not compared with {self.operand!r}")


def absent(key: bytes) -> Compare:
    """There is no such key."""
    return Compare(key, Subject.CREATE_REVISION, Relation.EQUAL, 0)


def unchanged(key: bytes, mod_revision: int) -> Compare:
    """The key was not changed, deleted or recreated since `mod_revision`."""
    return Compare(key, Subject.MOD_REVISION, Relation.EQUAL, mod_revision)


def same_key(key: bytes, create_revision: int) -> Compare:
    """It is still the key that `create_revision` made, whatever was put to it since."""
    return Compare(key, Subject.CREATE_REVISION, Relation.EQUAL, create_revision)


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; with `lease` it is deleted when that lease ends, with 0 it stays."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete every key of a range."""

    keys: KeyRange


@dataclass(frozen=True, slots=True)
class Get:
    """Read every key of a range, as it is after the operations before this one."""

    keys: KeyRange


Operation: TypeAlias = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class Txn:
    """If all of `compares` hold then all of `then`, else all of `otherwise`, at one revision.

    A branch puts a key once at most, and does not put what it deletes.
    """

    compares: Sequence[Compare] = ()
    then: Sequence[Operation] = ()
    otherwise: Sequence[Operation] = ()

    @property
    def may_write(self) -> bool:
        """Whether either branch changes anything."""
        return any(not isinstance(each, Get) for each in (*self.then, *self.otherwise))


@dataclass(frozen=True, slots=True)
class OperationResult:
    """`found` of a Get, in the order of keys; `deleted` of a Delete, a count."""

    found: tuple[KeyValue, ...] = ()
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Which branch was taken, what came of each of its operations, and the store's revision
    afterwards: that of the transaction itself if it changed anything."""

    succeeded: bool
    revision: int
    results: tuple[OperationResult, ...]


# ---- reads and watches


@dataclass(frozen=True, slots=True)
class Found:
    """One key, None where it is absent, at `revision` of the store."""

    revision: int
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys of a range, in order, at `revision` of the store."""

    revision: int
    kvs: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A key was put, or deleted: then `kv` has its name, the revision that deleted it, and
    nothing else."""

    kv: KeyValue
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes in the order in which they were made; the last one is of `revision`."""

    revision: int
    changes: tuple[Change, ...]


WatchUpdate: TypeAlias = Changes | Listing
"""A Listing stands for changes that were compacted before they could be told: it is the whole
range, and what it does not name is gone."""


# ---- leases


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted or renewed lease: it lives at least until `t_sent + ttl_s`.

    `t_sent` is what the client's monotonic clock said, in seconds, before the request was sent that
    this answers; `ttl_s` is what the coordinator granted, at least what was asked for.
    """

    lease_id: int
    ttl_s: int
    t_sent: float
