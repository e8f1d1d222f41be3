"""The settings of a producer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cluster.connection_options import ConnectionOptions
from ..format.constants import group_fault
from ..format.record.producer_mark import producer_id_fault
from ..hooks import ClientHook, check_hooks

if TYPE_CHECKING:
    from ..telemetry.producer_statistics import ProducerStatistics
    from .transaction_checks import TransactionChecker

MAX_DELIVERY_TIMEOUT_MS = 30 * 60_000


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Sizes in bytes, times in milliseconds.

    A request is sent when it has `batch_bytes`, or `linger_ms` after its first message. The
    connection must carry it within `answer_timeout_ms`: 4 MiB need 3 Mbit/s. While
    `max_in_flight_bytes` have no response, send waits, `max_block_ms` at most.

    `delivery_timeout_ms` bounds all attempts for a message, `answer_timeout_ms` the silence of a
    node before the client looks for another one. The first is half an hour at most: a node
    remembers every producer that has sent within the last hour, and after it has forgotten one, it
    cannot tell what that one has stored.

    `idempotent`: a retry never stores a message twice; without it, requests that a broken
    connection left open fail as unknown and are not retried. `producer_id` names the producer
    across restarts: a new one with the same name takes over and fences the old one; None: a random
    name. `epoch` is for callers that number their own restarts: the same name, epoch and messages
    in the same requests again are recognised as the same; None: the next free epoch.

    `transaction_group` names the producers that may be asked about each other's transactions, by
    `transaction_checker` (see AsyncProducer.transaction): those of one program.

    Bodies of `compress_above` bytes or more are stored compressed. `unique_ids` gives every
    message a UNIQ_KEY by which it can be found, as RocketMQ's client does. `trace` makes a span of
    OpenTelemetry for each send, and its context a property of the message (tracing.py); it needs
    the extra `otel`.

    `on_statistics` gets a ProducerStatistics every `statistics_interval_ms`, in the client's
    thread; do not call a client in it. `hooks` see each message before it is sent, and what became
    of each request.
    """

    batch_bytes: int = 4 << 20
    linger_ms: float = 5.0
    max_in_flight_bytes: int = 32 << 20
    max_in_flight_requests: int = 32
    max_block_ms: float = 60_000
    delivery_timeout_ms: float = 120_000
    answer_timeout_ms: float = 15_000
    idempotent: bool = True
    producer_id: str | None = None
    epoch: int | None = None
    compress_above: int | None = None
    unique_ids: bool = True
    trace: bool = False
    on_statistics: "Callable[[ProducerStatistics], object] | None" = None
    statistics_interval_ms: float = 60_000
    hooks: Sequence[ClientHook] = ()
    transaction_group: str | None = None
    transaction_checker: "TransactionChecker | None" = None
    route_max_age_ms: float = 30_000
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)

    def __post_init__(self) -> None:
        check_hooks(self.hooks)
        for name in (
            "batch_bytes",
            "max_in_flight_bytes",
            "delivery_timeout_ms",
            "answer_timeout_ms",
            "route_max_age_ms",
            "statistics_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive: {getattr(self, name)}")
        if self.delivery_timeout_ms > MAX_DELIVERY_TIMEOUT_MS:
            raise ValueError(
                f"delivery_timeout_ms must be {MAX_DELIVERY_TIMEOUT_MS} at most: "
                f"{self.delivery_timeout_ms}"
            )
        for name in ("linger_ms", "max_block_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")
        # A node remembers the last 64 requests of a producer; all that may be repeated must be
        # among them.
        if not 1 <= self.max_in_flight_requests <= 60:
            raise ValueError(f"max_in_flight_requests must be 1..60: {self.max_in_flight_requests}")
        if self.producer_id is not None:
            fault = producer_id_fault(self.producer_id)
            if fault is not None:
                raise ValueError(f"producer_id {self.producer_id!r}: {fault}")
            if not self.idempotent:
                raise ValueError("producer_id has no meaning without idempotent")
        if self.transaction_group is not None:
            fault = group_fault(self.transaction_group, new=False)
            if fault is not None:
                raise ValueError(f"transaction_group {self.transaction_group!r}: {fault}")
        elif self.transaction_checker is not None and self.producer_id is None:
            raise ValueError("a transaction_checker needs a transaction_group, or a producer_id")
        if self.transaction_checker is not None and not callable(self.transaction_checker):
            raise ValueError(f"transaction_checker {self.transaction_checker!r}: not callable")
        if self.epoch is not None and (self.producer_id is None or self.epoch < 0):
            raise ValueError("epoch needs a producer_id and must not be negative")
