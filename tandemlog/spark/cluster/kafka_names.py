"""What the options of Spark's Kafka source and sink are called here.

Most have the same name and form: assign, startingOffsets, endingOffsets, the options by time,
failOnDataLoss, maxOffsetsPerTrigger, minPartitions, topic. Four more mean exactly what an option
here means, and are accepted for it. For every other one there is a sentence that names the option
here: if it were ignored, the query would read or write something else than its user expects.
"""

from typing import Final

KAFKA_ALIASES: Final = {
    "kafka.bootstrap.servers": "endpoint",
    "subscribe": "topics",
    "subscribepattern": "topicspattern",
    "kafkaconsumer.polltimeoutms": "pulltimeoutms",
}
"""Kafka's name -> the name here, in lower case."""

_TLS = "the options here are caFile, certFile, keyFile and serverName (docs/security.md)"
_TOKEN = "the options here are token and tokenFile (docs/security.md)"
_RETRY = "the option here is retryTimeoutMs, for all attempts of a call"
_PULL = "the option here is pullBytes, the size of one response"
_SEND = "the option here is sendTimeoutMs: until then a task tries again"
_ONCE = (
    "writes are exactly once by default (deliveryGuarantee); a batch write has idempotencyId as a "
    "name that lasts"
)
_BATCH = "the options here are batchMessages and batchBytes, the limits of one request"

_ELSEWHERE: Final = {
    "kafka.group.id": (
        "the option here is groupId, and it does more: the group keeps where the stream starts, "
        "and a new checkpoint with the same group continues there"
    ),
    "groupidprefix": "no group is made up for a query here; groupId names one if it shall have one",
    "includeheaders": (
        "leave it out, the column properties (a map of strings) is always there; "
        "the option columns leaves it out"
    ),
    "kafka.auto.offset.reset": "the option here is startingOffsets",
    "kafka.enable.auto.commit": "with groupId the cluster keeps how far a stream has come",
    "kafka.isolation.level": "leave it out, readers only see what is confirmed",
    "kafka.client.rack": "the option here is readFrom: slave, master or any",
    "kafka.max.poll.records": _PULL,
    "kafka.max.partition.fetch.bytes": _PULL,
    "kafka.fetch.max.bytes": _PULL,
    "kafka.request.timeout.ms": "the option here is requestTimeoutMs, for one call",
    "fetchoffset.numretries": _RETRY,
    "fetchoffset.retryintervalms": _RETRY,
    "kafka.acks": (
        "the cluster's setting decides; waitForCluster=false is Kafka's acks=1, "
        "and to leave it out is acks=all"
    ),
    "kafka.enable.idempotence": _ONCE,
    "kafka.transactional.id": _ONCE,
    "kafka.retries": _SEND,
    "kafka.delivery.timeout.ms": _SEND,
    "kafka.batch.size": _BATCH,
    "kafka.linger.ms": _BATCH,
    "kafka.max.request.size": _BATCH,
    "kafka.compression.type": "leave it out, the sink does not compress bodies",
    "kafka.partitioner.class": (
        "the column sharding_key chooses the queue of a row, the column queue_id names it"
    ),
}
_FAMILIES: Final = (
    ("kafka.ssl.", _TLS),
    ("kafka.security.", f"{_TLS}; {_TOKEN}"),
    ("kafka.sasl.", _TOKEN),
    (
        "kafka.",
        "there is no client of Kafka here to pass it to; the page docs/pipeline.md has all options",
    ),
)
"""By how a name begins, the longest first."""

KAFKA_COLUMNS: Final = {
    "key": "sharding_key (its queue, and so its order) or keys (the index)",
    "value": "body",
    "headers": "properties, a map of strings",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp (when the master stored it) or born_timestamp (when it was sent)",
}
"""Kafka's column -> the one here."""


def kafka_fault(key: str) -> str | None:
    """What to use in place of an option of Kafka's that is not accepted; None for other options.
    `key` is in lower case."""
    families = (text for start, text in _FAMILIES if key.startswith(start))
    advice = _ELSEWHERE.get(key) or next(families, None)
    return None if advice is None else f"option {key} is one of Kafka's: {advice}"


def kafka_column(name: str) -> str:
    """An addition to the error for an unknown column, if it is one of Kafka's; else empty."""
    ours = KAFKA_COLUMNS.get(name.lower())
    return "" if ours is None else f". Kafka's {name.lower()} is here {ours}"
