"""Names of properties that mean something to RocketMQ, so that no message of a user has them.

They are those of RocketMQ 5.5's MessageConst, and all that begin with two underscores, which its
later releases, and this project, take names from.
"""

from typing import Final

_PREFIX: Final = "__"
_NAMES: Final = frozenset(
    {
        "ARRIVE_TIME",
        "BORN_HOST",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "FIRST_POP_TIME",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MQ2_FLAG",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_FLAG",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_LABEL",
        "TIMER_ROLL_TIMES",
        "TRACE_CONTEXT",
        "TRACE_ON",
        "TRANSACTION_CHECK_TIMES",
        "TRANSFER_FLAG",
        "TRAN_MSG",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "traceparent",
    }
)


def is_reserved(name: str) -> bool:
    """Whether a client may not give a property this name."""
    return name in _NAMES or name.startswith(_PREFIX)
