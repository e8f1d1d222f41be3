"""How a node differs for RocketMQ's clients from RocketMQ's broker 5.5.0, and means to.

Each sentence is in docs/from-rocketmq.md. `fields` says where the scenarios (scenarios.py) show it:
what differs there is allowed, and nothing else. Without fields it is something that they do not do.
"""

from typing import NamedTuple

from interop.scenarios import Allowed


class Meant(NamedTuple):
    """`fields` are pairs of scenario and path, which may have wildcards."""

    sentence: str
    fields: tuple[tuple[str, str], ...] = ()


MEANT = (
    Meant(
        "Delivered delays, timers and retries have a prepared offset: where the message waited, so "
        "that each node knows from the log what was delivered, and none delivers it again after a "
        "failover.",
        (("*", "*/prepared"),),
    ),
    Meant(
        "A message of a delay, a timer or a transaction has properties with the prefix `__TL_`.",
        (("*", "*/properties/__TL_*"),),
    ),
    Meant(
        "A half is not stored again each time that its producer is asked, so "
        "`TRANSACTION_CHECK_TIMES`, `TRAN_PREPARED_QUEUE_OFFSET` and `WAIT` are not in it.",
        (
            ("transactions", "*/properties/TRANSACTION_CHECK_TIMES"),
            ("transactions", "*/properties/TRAN_PREPARED_QUEUE_OFFSET"),
            ("transactions", "*/properties/WAIT"),
        ),
    ),
    Meant(
        "Dead letters have RocketMQ's `DLQ_ORIGIN_*` and the properties `TANDEMLOG_*` of "
        "tandemlog's work queues. They did not pass through a delay, so there is no `REAL_TOPIC` "
        "or `REAL_QID`.",
        (
            ("dead", "*/properties/TANDEMLOG_*"),
            ("dead", "*/properties/DLQ_ORIGIN_*"),
            ("dead", "*/properties/REAL_*"),
        ),
    ),
    Meant(
        "There is no wheel that a timer enters, and no `TIMER_ENQUEUE_MS` or `TIMER_DEQUEUE_MS`.",
        (("timed", "*/properties/TIMER_*QUEUE_MS"),),
    ),
    Meant("A delay level of 0 is no delay, and is not stored.", (("*", "*/properties/DELAY"),)),
    Meant(
        "A filter that cannot be parsed is refused; a broker answers that there is no message.",
        (("pull", "/no SQL"),),
    ),
    Meant(
        "The template of new topics (`TBW102`) takes no messages.",
        (("refused", "/topic of the system"),),
    ),
    Meant(
        "A topic without the permission to write takes none; a broker takes them.",
        (("topics", "/send to what is for reading"),),
    ),
    Meant(
        "The topic of a group's retries is there as soon as a client asks for it: the first retry "
        "comes at once, and the question for the members of a group without any is answered.",
        (("groups", "/members of none"),),
    ),
    Meant(
        "A group is not deleted with its offsets (`deleteSubGroup -r true`) while it has members; "
        "with a broker their next commits bring both back.",
    ),
    Meant(
        "A popped message that comes again stays in its queue; a broker copies it into "
        "`%RETRY%group_topic`, where it has another queue and offset. What the consumer sees of it "
        "(topic, `getReconsumeTimes`, `1ST_POP_TIME`, `ORIGIN_GROUP`) is the same.",
    ),
    Meant(
        "A popped message becomes a dead letter after the group's last try (`retryMaxTimes`, 16 by "
        "default). With a broker a push consumer acknowledges it then, and it is gone.",
    ),
    Meant(
        "`POP_CK` has a ninth field, the receipt handle. An invisible time is 1 s at least, and "
        "12 h at most; the answer says which.",
    ),
    Meant(
        "A pop that asks for an order makes it the group's setting if the group has not popped "
        "before; later it is refused.",
    ),
    Meant(
        "In an order, what is acknowledged does not come again behind a message that failed; a "
        "broker delivers everything again from the first message that is not done.",
    ),
    Meant(
        "A pop is served whatever time its client's clock says; a broker answers that there is "
        "nothing once the pop is 0.5 s older than it would wait.",
        (("pop-direct", "/too many, too late"),),
    ),
    Meant(
        "Nothing is written to `rmq_sys_REVIVE_LOG_*`; `initMode` 1 begins behind the last message "
        "of an old topic, where a broker gives that one too.",
    ),
    Meant(
        "A recall is refused if no such message waits (any more); a broker always says yes.",
    ),
    Meant(
        "A producer sees the queues of a topic once more for each slave, by another broker name: "
        "it continues there at the death of the master. They are the same queues, in one order.",
    ),
    Meant(
        "Groups are of one kind: while a group has members over this port, tandemlog's own "
        "consumers are refused in it, and the other way round.",
    ),
    Meant("A client that is known by its certificate alone reaches the master only."),
)


def allowed() -> list[Allowed]:
    """For `is_allowed` of scenarios.py."""
    return [
        Allowed(scenario, path, meant.sentence)
        for meant in MEANT
        for scenario, path in meant.fields
    ]
