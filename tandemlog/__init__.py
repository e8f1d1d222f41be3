"""tandemlog: the client of a replicated message log.

    from tandemlog import Consumer, Message, Producer

`Producer`, `Consumer` and `Admin` are synchronous; `AsyncProducer`, `AsyncConsumer` and
`AsyncAdmin` are the same for asyncio. docs/client.md has examples of everything.

Names are loaded when they are first used: a store that needs `tandemlog.format` alone loads no
network.

A program that starts others with a `preexec_fn`, as PySpark starts Java, copies its threads' state
before the other program runs. gRPC's core would begin to poll in that copy and, its descriptors
closed, abort it: one child in ten (grpc/grpc#43055). gRPC in Python works in no copy anyway unless
GRPC_ENABLE_FORK_SUPPORT is set, hence the core gets the same setting; an existing value stays. It
is read when gRPC is loaded: `import tandemlog` before `import grpc`.

gRPC's own resolver gives one address of a name that has several, which may be the dead one. The
system's gives all, and gRPC tries each (GRPC_DNS_RESOLVER, read at the same time).
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .admin import AsyncAdmin, ProducerInfo, TopicInfo
    from .cluster.connection_options import ConnectionOptions
    from .cluster.histories import PositionCheck
    from .cluster.profiles import Profile, load_profile
    from .cluster.topology import NodeInfo, ReadFrom, Topology
    from .cluster.transactions import OpenTransaction
    from .consume.consumer import AsyncConsumer
    from .consume.follow_options import FollowOptions
    from .consume.group.group_admin import GroupDescription, GroupMember, OffsetChange
    from .consume.reading.positions import COMMITTED, EARLIEST, LATEST, QueueRange
    from .consume.reading.queue_lag import QueueLag
    from .consume.received.received_batch import ReceivedBatch
    from .consume.received.received_message import ReceivedMessage
    from .consume.statistics import ConsumerStatistics
    from .consume.stream import AsyncStream
    from .consume.work.async_work import AsyncWork
    from .consume.work.delivery import AsyncDelivery, Delivery
    from .consume.work.signals import Reject, RetryAfter
    from .consume.work.work_admin import (
        AsyncWorkAdmin,
        DeadLetter,
        GroupWork,
        PolicyChange,
        QueueWork,
        ResentLetter,
    )
    from .consume.work.work_options import WorkOptions
    from .consume.work.work_statistics import WorkStatistics
    from .errors import TandemlogError
    from .format.files.log_history import LogHistory
    from .format.lease.policy import Backoff, GroupPolicy, Ordering, StartAt
    from .hooks import ClientHook
    from .message import Message, SendManyResult, SendResult
    from .produce.futures import SendFuture
    from .produce.producer import AsyncProducer
    from .produce.producer_options import ProducerOptions
    from .produce.transaction_checks import TransactionDecision
    from .produce.transactions import AsyncTransaction, CommittedMessage, TransactionResult
    from .sync.generated.admin import Admin
    from .sync.generated.consumer import Consumer
    from .sync.generated.work_admin import WorkAdmin
    from .sync.sync_producer import Producer
    from .sync.sync_stream import Stream
    from .sync.sync_transaction import Transaction
    from .sync.sync_work import Work
    from .telemetry.measures import Percentiles
    from .telemetry.producer_statistics import ProducerStatistics
    from .transport.security import Security

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

__all__ = [
    "COMMITTED",
    "EARLIEST",
    "LATEST",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncStream",
    "AsyncTransaction",
    "AsyncWork",
    "AsyncWorkAdmin",
    "Backoff",
    "ClientHook",
    "CommittedMessage",
    "ConnectionOptions",
    "Consumer",
    "ConsumerStatistics",
    "DeadLetter",
    "Delivery",
    "FollowOptions",
    "GroupDescription",
    "GroupMember",
    "GroupPolicy",
    "GroupWork",
    "LogHistory",
    "Message",
    "NodeInfo",
    "OffsetChange",
    "OpenTransaction",
    "Ordering",
    "Percentiles",
    "PolicyChange",
    "PositionCheck",
    "Producer",
    "ProducerInfo",
    "ProducerOptions",
    "ProducerStatistics",
    "Profile",
    "QueueLag",
    "QueueRange",
    "QueueWork",
    "ReadFrom",
    "ReceivedBatch",
    "ReceivedMessage",
    "Reject",
    "ResentLetter",
    "RetryAfter",
    "Security",
    "SendFuture",
    "SendManyResult",
    "SendResult",
    "StartAt",
    "Stream",
    "TandemlogError",
    "TopicInfo",
    "Topology",
    "Transaction",
    "TransactionDecision",
    "TransactionResult",
    "Work",
    "WorkAdmin",
    "WorkOptions",
    "WorkStatistics",
    "errors",
    "load_profile",
]

_MODULES = {
    "admin": ("AsyncAdmin", "ProducerInfo", "TopicInfo"),
    "cluster.connection_options": ("ConnectionOptions",),
    "consume.consumer": ("AsyncConsumer",),
    "consume.statistics": ("ConsumerStatistics",),
    "consume.stream": ("AsyncStream",),
    "consume.work.async_work": ("AsyncWork",),
    "consume.work.delivery": ("AsyncDelivery", "Delivery"),
    "consume.work.signals": ("Reject", "RetryAfter"),
    "consume.work.work_admin": (
        "AsyncWorkAdmin",
        "DeadLetter",
        "GroupWork",
        "PolicyChange",
        "QueueWork",
        "ResentLetter",
    ),
    "consume.work.work_options": ("WorkOptions",),
    "consume.work.work_statistics": ("WorkStatistics",),
    "format.lease.policy": ("Backoff", "GroupPolicy", "Ordering", "StartAt"),
    "errors": ("TandemlogError",),
    "consume.follow_options": ("FollowOptions",),
    "consume.group.group_admin": ("GroupDescription", "GroupMember", "OffsetChange"),
    "consume.reading.queue_lag": ("QueueLag",),
    "cluster.histories": ("PositionCheck",),
    "format.files.log_history": ("LogHistory",),
    "hooks": ("ClientHook",),
    "message": ("Message", "SendManyResult", "SendResult"),
    "consume.reading.positions": ("COMMITTED", "EARLIEST", "LATEST", "QueueRange"),
    "produce.producer": ("AsyncProducer",),
    "produce.producer_options": ("ProducerOptions",),
    "produce.transaction_checks": ("TransactionDecision",),
    "produce.transactions": ("AsyncTransaction", "CommittedMessage", "TransactionResult"),
    "consume.received.received_batch": ("ReceivedBatch",),
    "consume.received.received_message": ("ReceivedMessage",),
    "produce.futures": ("SendFuture",),
    "sync.generated.admin": ("Admin",),
    "sync.generated.consumer": ("Consumer",),
    "sync.generated.work_admin": ("WorkAdmin",),
    "sync.sync_producer": ("Producer",),
    "sync.sync_stream": ("Stream",),
    "sync.sync_work": ("Work",),
    "sync.sync_transaction": ("Transaction",),
    "cluster.transactions": ("OpenTransaction",),
    "cluster.profiles": ("Profile", "load_profile"),
    "telemetry.measures": ("Percentiles",),
    "telemetry.producer_statistics": ("ProducerStatistics",),
    "transport.security": ("Security",),
    "cluster.topology": ("NodeInfo", "ReadFrom", "Topology"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is not None:
        value = getattr(importlib.import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
