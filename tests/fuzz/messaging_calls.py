"""Calls of clients of the 5.x API: a valid request of each method, and what is done to it.

    valid request ─▶ its topic, group, handles, times, numbers ─▶ fields or bytes mutated
                  ─▶ headers: client id, signature, marks of other nodes
                  ─▶ how it ends: read to its end, or left in the middle

A call is a function of the seed and its number, and of the handles that earlier answers gave.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from fuzz.mutate import Mutator
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

TOPIC: Final = "orders"
GROUP: Final = "readers"
GONE: Final = "gone"
NAMES: Final = (
    TOPIC.encode(), GROUP.encode(), GONE.encode(), b"%RETRY%readers", b"%DLQ%readers", b"space",
    b"*", b"a || b", b"a > 5 AND b IS NOT NULL", b"a = ", b"((((((((", b"NOT " * 2_000,
    b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_wheel_timer",
)  # fmt: skip
MOST_BYTES: Final = 3 << 20
KEPT: Final = 256
LEAVE: Final = 0.08
BAD_HEADERS: Final = 0.06
_WEIGHTS: Final = {
    "SendMessage": 30, "ReceiveMessage": 25, "AckMessage": 15, "ChangeInvisibleDuration": 10,
    "ForwardMessageToDeadLetterQueue": 6, "EndTransaction": 8, "RecallMessage": 6,
    "QueryRoute": 6, "QueryAssignment": 6, "Heartbeat": 4, "NotifyClientTermination": 3,
    "Telemetry": 12,
}  # fmt: skip
_ODD_HEADERS: Final = (
    ("x-mq-client-id", ""), ("x-mq-client-id", "c" * 600), ("x-mq-client-id", "client-1"),
    ("authorization", "MQv2-HMAC-SHA1 Credential=admin, SignedHeaders=x-mq-date-time, Signature=0"),
    ("authorization", "MQv2-HMAC-SHA1 " + "Credential=,"* 200), ("authorization", "Bearer x"),
    ("x-mq-date-time", "x" * 4_000), ("x-tandemlog-handed-on", "1"), ("x-tandemlog-repeated", "1"),
    ("x-mq-language", "\x7e" * 3_000),
)  # fmt: skip

_mutator = Mutator(NAMES)
_guarded_mutator = Mutator((*NAMES, b"canary", b"canaries"))
"""Of calls of an identity that has no right to these."""


@dataclass(frozen=True)
class MessagingTrial:
    """One call of the method `name`; `messages` go out one after the other. `leaves`: the client is
    gone after so many answers, None for one that reads all of them."""

    name: str
    messages: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    leaves: int | None = None


@dataclass
class Known:
    """What answers gave."""

    receipts: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    transactions: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    recalls: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    def learn(self, answers: Iterable[Message]) -> None:
        for each in answers:
            if isinstance(each, v2.ReceiveMessageResponse) and each.HasField("message"):
                self.receipts.append(each.message.system_properties.receipt_handle)
            elif isinstance(each, v2.SendMessageResponse):
                self.transactions += [row.transaction_id for row in each.entries]
                self.recalls += [row.recall_handle for row in each.entries]


def messaging_trial(seed: int, number: int, known: Known, *, guarded: bool) -> MessagingTrial:
    """See the module."""
    mutator = _guarded_mutator if guarded else _mutator
    random = Random(seed << 32 | number)
    name = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    messages = [each.SerializeToString() for each in _REQUESTS[name](random, known)]
    descriptor = REQUESTS[name].DESCRIPTOR
    if random.random() < 0.8:
        at = random.randrange(len(messages))
        messages[at] = mutator.message(random, messages[at], descriptor)[:MOST_BYTES]
    if name == "Telemetry" and random.random() < 0.3:
        messages.insert(random.randrange(len(messages) + 1), random.choice(messages))
    headers = [("x-mq-client-id", f"client-{random.randrange(4)}")]
    if random.random() < BAD_HEADERS:
        headers += random.sample(_ODD_HEADERS, random.choice((1, 1, 2, 3)))
    leaves = random.choice((0, 0, 1, 2)) if random.random() < LEAVE else None
    return MessagingTrial(name, tuple(messages), tuple(headers), leaves)


# ---- valid requests

_Make = Callable[[Random, Known], Sequence[Message]]


def _topic() -> v2.Resource:
    return v2.Resource(name=TOPIC)


def _group(random: Random) -> v2.Resource:
    return v2.Resource(name=GROUP if random.random() < 0.8 else f"{GROUP}-{random.randrange(3)}")


def _one(texts: Sequence[str], random: Random) -> str:
    return random.choice(texts) if texts else "none"


def _send(random: Random, _: Known) -> Sequence[Message]:
    kinds = (v2.NORMAL, v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
    request, kind = v2.SendMessageRequest(), random.choice(kinds)
    for _each in range(random.choice((1, 1, 1, 2, 5))):
        message = request.messages.add(topic=_topic(), body=random.randbytes(20))
        message.user_properties["a"] = str(random.randrange(9))
        system = message.system_properties
        system.message_id, system.tag = f"ID{random.randrange(1_000)}", random.choice("abc")
        system.keys.append("k")
        system.message_type, system.body_encoding = kind, v2.IDENTITY
        system.born_timestamp.FromMilliseconds(1_700_000_000_000)
        system.born_host, system.trace_context = "host", "00-1-2-01"
        if kind == v2.FIFO:
            system.message_group = random.choice("xyz")
        if kind == v2.DELAY:
            system.delivery_timestamp.FromMilliseconds(random.choice((0, 1, 4_000_000_000_000)))
    return [request]


def _receive(random: Random, _: Known) -> Sequence[Message]:
    request = v2.ReceiveMessageRequest(
        group=_group(random), batch_size=random.choice((1, 2, 32)), auto_renew=random.random() < 0.4
    )
    request.message_queue.topic.CopyFrom(_topic())
    request.message_queue.broker.endpoints.addresses.add(host="h", port=1)
    request.invisible_duration.FromMilliseconds(random.choice((1_000, 10_000, 30_000)))
    request.long_polling_timeout.FromMilliseconds(random.choice((0, 1, 300)))
    request.attempt_id = f"attempt-{random.randrange(8)}"
    kind, text = random.choice(((v2.TAG, "*"), (v2.TAG, "a || b"), (v2.SQL, "a > '3'")))
    request.filter_expression.type, request.filter_expression.expression = kind, text
    return [request]


def _ack(random: Random, known: Known) -> Sequence[Message]:
    request = v2.AckMessageRequest(group=_group(random), topic=_topic())
    for _each in range(random.choice((1, 1, 2, 40))):
        request.entries.add(message_id="m", receipt_handle=_one(known.receipts, random))
    return [request]


def _change(random: Random, known: Known) -> Sequence[Message]:
    request = v2.ChangeInvisibleDurationRequest(
        group=_group(random), topic=_topic(), receipt_handle=_one(known.receipts, random)
    )
    request.invisible_duration.FromMilliseconds(random.choice((0, 1, 1_000, 60_000)))
    return [request]


def _forward(random: Random, known: Known) -> Sequence[Message]:
    handle = _one(known.receipts, random)
    return [v2.DeadLetterRequest(group=_group(random), topic=_topic(), receipt_handle=handle)]


def _end(random: Random, known: Known) -> Sequence[Message]:
    return [
        v2.EndTransactionRequest(
            topic=_topic(),
            message_id="m",
            transaction_id=_one(known.transactions, random),
            resolution=random.choice((v2.COMMIT, v2.ROLLBACK)),
            source=v2.SOURCE_CLIENT,
        )
    ]


def _recall(random: Random, known: Known) -> Sequence[Message]:
    return [v2.RecallMessageRequest(topic=_topic(), recall_handle=_one(known.recalls, random))]


def _route(_: Random, __: Known) -> Sequence[Message]:
    request = v2.QueryRouteRequest(topic=_topic())
    request.endpoints.addresses.add(host="h", port=1)
    return [request]


def _assignment(random: Random, _: Known) -> Sequence[Message]:
    return [v2.QueryAssignmentRequest(topic=_topic(), group=_group(random))]


def _heartbeat(random: Random, _: Known) -> Sequence[Message]:
    kind = random.choice((v2.PRODUCER, v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER))
    return [v2.HeartbeatRequest(group=_group(random), client_type=kind)]


def _goodbye(random: Random, _: Known) -> Sequence[Message]:
    return [v2.NotifyClientTerminationRequest(group=_group(random))]


def _telemetry(random: Random, _: Known) -> Sequence[Message]:
    commands = []
    for _each in range(random.choice((1, 2, 3))):
        settings = v2.Settings(client_type=random.choice((v2.PRODUCER, v2.PUSH_CONSUMER)))
        settings.request_timeout.FromSeconds(3)
        settings.user_agent.version = "5.1"
        settings.backoff_policy.exponential_backoff.multiplier = 2.0
        if settings.client_type == v2.PRODUCER:
            settings.publishing.topics.append(_topic())
        else:
            settings.subscription.group.CopyFrom(_group(random))
            row = settings.subscription.subscriptions.add(topic=_topic())
            row.expression.expression = "*"
            settings.subscription.long_polling_timeout.FromSeconds(20)
        commands.append(v2.TelemetryCommand(settings=settings))
    return commands


_REQUESTS: Final[dict[str, _Make]] = {
    "SendMessage": _send, "ReceiveMessage": _receive, "AckMessage": _ack,
    "ChangeInvisibleDuration": _change, "ForwardMessageToDeadLetterQueue": _forward,
    "EndTransaction": _end, "RecallMessage": _recall, "QueryRoute": _route,
    "QueryAssignment": _assignment, "Heartbeat": _heartbeat, "NotifyClientTermination": _goodbye,
    "Telemetry": _telemetry,
}  # fmt: skip


def _classes(kind: str) -> dict[str, Any]:
    service = v2.DESCRIPTOR.services_by_name["MessagingService"]
    return {each.name: getattr(v2, getattr(each, kind).name) for each in service.methods}


REQUESTS: Final[dict[str, Any]] = _classes("input_type")
ANSWERS: Final[dict[str, Any]] = _classes("output_type")
