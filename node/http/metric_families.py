"""Every family of metrics that a node has: name, type, labels, unit, meaning.

This table is the only place for them. The collector (metrics.py) takes a family's type, labels
and help text from here, and docs/monitoring.md is written from it (monitoring_docs.py). A family
that is not in the table cannot be exported.

Each family has the labels `cluster` and `node` before its own. Names end in their unit where they
have one, counters in `_total`.
"""

from dataclasses import dataclass
from enum import Enum

PREFIX = "tandemlog_"
COMMON_LABELS = ("cluster", "node")


class MetricKind(Enum):
    """Prometheus' types, as far as they are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """`name` is without prefix; `labels` are those beside COMMON_LABELS; `unit` of the value."""

    name: str
    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class Section:
    """Families that belong together, and what is to be said about all of them."""

    title: str
    introduction: str
    families: tuple[Family, ...]


def _gauge(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.GAUGE, unit, meaning, labels)


def _counter(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.COUNTER, unit, meaning, labels)


def _histogram(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.HISTOGRAM, unit, meaning, labels)


_NODE = Section(
    "The node",
    "",
    (
        _gauge("build_info", "", "Always 1; the label is the version of the program.", "version"),
        _gauge("uptime_seconds", "seconds", "Time since the store was opened."),
        _gauge("role", "0 or 1", "1 on the master, 0 on a slave and on a node without a role."),
        _gauge(
            "can_ack", "0 or 1",
            "1 if this node could acknowledge a put now. Exactly one node of a healthy cluster has "
            "1.",
        ),
        _gauge(
            "store_failed", "0 or 1",
            "1 if the store has stopped permanently, after a failed fsync for example. The log "
            "says why; the node needs a working disk and a restart.",
        ),
        _gauge(
            "clock_jump_seconds", "seconds",
            "How far the machine's clock has jumped, if messages do not have its time: 0 in good "
            "times. It becomes the time of messages if it stays there for ten minutes.",
        ),
        _gauge(
            "unreadable_files", "files",
            "Files of the log of which something could not be read, and still cannot: `/health` "
            "and `tandemlog check` name them, readers go to another node.",
        ),
        _gauge(
            "certificate_expiry_seconds", "seconds since 1970",
            "When the node's own certificate expires. Only on nodes with TLS.",
        ),
    ),
)  # fmt: skip

_PUTS = Section(
    "Puts",
    "A put counts on the node that stored it as master. What a slave receives from its master is "
    "replication, see below. Latencies are measured in the node.",
    (
        _counter(
            "messages_in_total", "messages",
            "Messages stored, by topic. A retry that was stored before does not count.", "topic",
        ),
        _counter(
            "bytes_in_total", "bytes",
            "Bytes of stored messages, by topic: bodies, properties and headers. Divided by "
            "messages_in_total it is the mean size of a message.", "topic",
        ),
        _histogram(
            "message_size_bytes", "bytes",
            "Bytes of each message in the log: body, properties and headers.",
        ),
        _counter(
            "acks_total", "requests",
            "Responses to put requests, by result: ok, timeout (stored here, not confirmed in "
            "time), not_enough_isr (refused: too few in-sync replicas), unknown, refused.",
            "result",
        ),
        _histogram(
            "ack_seconds", "seconds",
            "From the arrival of a put to its acknowledgement, for each acknowledged message. The "
            "label is flush mode and replication mode of the node.", "mode",
        ),
        _histogram(
            "append_seconds", "seconds",
            "Part of it: checks and write to the log, without fsync, for each message.",
        ),
        _histogram(
            "flush_seconds", "seconds", "Duration of each fsync of the log."
        ),
        _histogram(
            "confirm_seconds", "seconds",
            "Part of it: from the append of a put request until it was confirmed, by the fsync of "
            "this node or by all in-sync replicas, for each request.",
        ),
        _counter(
            "put_duplicates_total", "messages",
            "Messages of retries that were stored before and were not stored again.",
        ),
        _counter("put_busy_total", "requests", "Put requests refused: the disk is too slow."),
        _gauge("puts_waiting", "requests", "Put requests that wait for their confirmation."),
    ),
)  # fmt: skip

_READS = Section(
    "Reads",
    "",
    (
        _counter("messages_out_total", "messages", "Messages read from queues, by topic.", "topic"),
        _counter("bytes_out_total", "bytes", "Bytes of messages read, by topic.", "topic"),
        _histogram(
            "pull_seconds", "seconds",
            "From the arrival of a pull to its response, without the time that a long poll waited "
            "for a message.",
        ),
        _counter("gets_total", "reads", "Reads of one queue; a pull of several queues is several."),
        _counter("get_misses_total", "reads", "Those that found no message."),
        _counter("queries_total", "queries", "Queries by key, unique id or tag."),
        _gauge("long_polls", "pulls", "Pulls that wait for a message now."),
        _gauge(
            "answer_bytes", "bytes",
            "Memory of responses in progress; its limit is limits.answer_bytes.",
        ),
    ),
)  # fmt: skip

_GROUPS = Section(
    "Consumer groups",
    "The lag is exported by the master only, so that a sum over all nodes is right. It exists for "
    "each pair of group and topic with a committed offset. Traffic is counted by each node from "
    "the calls that it gets itself.",
    (
        _gauge(
            "consumer_lag_messages", "messages",
            "Messages of the topic that are stored and that the group has not committed yet, over "
            "all queues.", "group", "topic",
        ),
        _gauge(
            "consumer_lag_seconds", "seconds",
            "Age of the oldest of them: now minus its store time; 0 without lag. An idle topic has "
            "no lag, and a stuck group's lag grows by a second each second.", "group", "topic",
        ),
        _gauge(
            "group_members", "members",
            "Members of the group, on the master. A group without members, because its consumers "
            "choose their queues themselves, and any group on a slave: connections that pulled or "
            "committed for it in the last 90 s.", "group",
        ),
        _gauge("groups_with_members", "groups", "Groups that have members; 0 on a slave."),
        _gauge(
            "groups_reconciling", "groups",
            "Groups whose queues are on their way to other members. One that stays so for longer "
            "than its rebalance timeout has a member that does not give up a queue.",
        ),
        _counter(
            "group_rebalances_total", "rebalances",
            "New assignments of queues, because members, subscriptions or topics changed.",
        ),
        _counter(
            "group_fenced_commits_total", "offsets",
            "Offsets that were not committed, because their queue belongs to another member. Many "
            "of them: members are slower than their session timeout, and others do their work "
            "again.",
        ),
        _counter(
            "group_members_removed_total", "members",
            "Members that left, timed out or were replaced; the log says which, and why.",
        ),
        _counter(
            "group_messages_out_total", "messages", "Messages that the group has pulled here.",
            "group",
        ),
        _counter("group_bytes_out_total", "bytes", "Bytes that it has pulled here.", "group"),
        _counter(
            "group_commits_total", "commits",
            "Commits of offsets by the group. A group that pulls and does not commit will read the "
            "same messages again.", "group",
        ),
    ),
)  # fmt: skip

_DELAYS = Section(
    "Messages that come later",
    "What waits is the same on every node; the master lets it come, and counts it.",
    (
        _gauge("delayed_messages", "messages", "Messages that wait for their time."),
        _gauge(
            "delayed_messages_by_due",
            "messages",
            "The same by when they come: `now` those that are due, `1m`, `1h` and `1d` those that "
            "come within that time, `later` the rest. Each message counts once.",
            "due",
        ),
        _gauge(
            "delayed_overdue_seconds",
            "seconds",
            "For how long the first message that is due has waited for the master; 0 if none is, "
            "and on a slave. It stays below a second in a healthy cluster.",
        ),
        _counter("delayed_delivered_total", "messages", "Messages that came."),
        _counter("delayed_recalled_total", "messages", "Messages that were called back."),
        _counter(
            "delayed_set_aside_total",
            "messages",
            "Messages that could not come and are tried again each minute: their record cannot be "
            "read, or the log does not take it. The node's log names them.",
        ),
        _counter(
            "delayed_rolled_total",
            "messages",
            "Messages that wait on in a new record, because the file of the old one was to go.",
        ),
    ),
)
_WORK = Section(
    "Work queues",
    "On the master, which leases messages; 0 on a slave. Counters count what this process did.",
    (
        _gauge("work_unacked", "messages", "Messages that were delivered and are not done."),
        _gauge("work_leased", "messages", "Those of them that a consumer has now."),
        _gauge(
            "work_oldest_unacked_seconds",
            "seconds",
            "How long ago the oldest of these was first delivered; 0 if there is none. `tandemlog "
            "group describe` shows whose it is.",
        ),
        _gauge("work_receives_waiting", "receives", "Consumers that wait for a message."),
        _counter(
            "work_delivered_total",
            "messages",
            "Deliveries, the first one of a message or a later one.",
        ),
        _counter("work_redelivered_total", "messages", "Deliveries that were not the first one."),
        _counter("work_acknowledged_total", "messages", "Messages that consumers have ended."),
        _counter("work_retried_total", "messages", "Messages that consumers have failed."),
        _counter(
            "work_expired_total",
            "messages",
            "Leases that ended without an answer: handlers are slower than the lease and do not "
            "extend it, or consumers die.",
        ),
        _counter(
            "work_set_aside_total",
            "messages",
            "Messages that the disk could not read when their turn came: they are tried again "
            "every minute, and others are delivered meanwhile, unless their group keeps an order. "
            "The log names them.",
        ),
        _counter("work_dead_letters_total", "messages", "Messages that became dead letters."),
        _counter(
            "work_invalid_handles_total",
            "handles",
            "Handles that were refused: the message was delivered again before.",
        ),
    ),
)
_TRANSACTIONS = Section(
    "Transactions",
    "What is open is the same on every node; the master ends it, and counts.",
    (
        _gauge("transactions_open", "transactions", "Transactions that have not ended."),
        _gauge(
            "transactions_oldest_seconds",
            "seconds",
            "Age of the oldest of them; 0 if none is open. Its producers are asked about it after "
            "transactions.check_after_ms.",
        ),
        _counter("transactions_committed_total", "transactions", "Transactions committed."),
        _counter("transactions_rolled_back_total", "transactions", "Transactions rolled back."),
        _counter(
            "transactions_given_up_total",
            "transactions",
            "Those among them that no producer has decided.",
        ),
        _counter(
            "transactions_checks_total",
            "checks",
            "How often the master has asked producers about a transaction.",
        ),
        _counter(
            "transactions_finished_total",
            "messages",
            "Messages of committed transactions that a later append has written: what a crash has "
            "torn off, or one append did not take.",
        ),
    ),
)
_REPLICATION = Section(
    "Replication",
    "What a node says of others is what its master last told it; the master knows best. The label "
    "`peer` is the node that the sample is about. The documents call the set of replicas whose "
    "acknowledgement a put needs *in-sync set*; the names of metrics say `isr`.",
    (
        _gauge("isr_size", "nodes", "In-sync replicas, the master included."),
        _gauge(
            "isr_min", "nodes",
            "In-sync replicas that a put needs (`replication.min_in_sync`).",
        ),
        _gauge(
            "under_min_isr", "0 or 1",
            "1 if there are fewer in-sync replicas than a put needs: puts are refused.",
        ),
        _gauge("isr_member", "0 or 1", "1 if the peer is in the in-sync set.", "peer"),
        _gauge(
            "replication_lag_bytes", "bytes",
            "How far the slave's durable log is behind the end of the master's.", "peer",
        ),
        _gauge(
            "replication_lag_seconds", "seconds",
            "Time since the slave last had the whole log of the master.", "peer",
        ),
        _gauge(
            "alarms", "0 or 1",
            "1 if the peer may hold acknowledged messages that this master lacks (see "
            "replication.md). `/health` and the log say what to do.", "peer",
        ),
        _counter(
            "replicated_chunks_total", "chunks", "Pieces of log that this slave took from a master."
        ),
        _counter(
            "replicated_bytes_total", "bytes", "Bytes of log that this slave took from a master."
        ),
    ),
)  # fmt: skip

_ELECTIONS = Section(
    "Elections",
    "Only where the cluster elects its master (`coordinator.endpoints`), except `epoch`.",
    (
        _gauge("epoch", "", "Number of the term in which the node is; it only grows."),
        _gauge(
            "leader_lease_remaining_seconds", "seconds",
            "How long this master may still count on its lease; 0 on other nodes.",
        ),
        _gauge(
            "coordinator_last_success_age_seconds", "seconds",
            "Time since the coordinator last answered; -1 if it never did.",
        ),
        _gauge(
            "coordinator_last_accepted_age_seconds", "seconds",
            "Time since the coordinator last accepted a change of this node, which it tries every "
            "few seconds; -1 if it never did. While it answers and accepts none, no node can be "
            "elected.",
        ),
        _gauge(
            "coordinator_epoch", "",
            "The newest term that the coordinator has given, as this node sees it; 0 if it has not "
            "read it yet. No node has a higher `epoch`, unless it led by its configuration.",
        ),
        _gauge("paused", "0 or 1", "1 while an operator has paused failover."),
        _counter("elections_total", "terms", "Terms that this node has begun since its start."),
        _gauge(
            "unclean_epoch", "",
            "The newest term that may have begun without acknowledged messages; 0 if none did. "
            "With async replication each failover is one of these.",
        ),
        _counter(
            "incarnation_changes_total", "changes",
            "How often the node's disk joined as a new one since its start, because it may have "
            "lost messages.",
        ),
    ),
)  # fmt: skip

_LOG = Section(
    "Log and disk",
    "Offsets are positions in the log, in bytes; they grow with each message. The difference of "
    "two is how far one stage is behind the other: `log_end_offset - durable_offset` is not "
    "fsynced yet, `log_end_offset - confirm_offset` is not confirmed yet.",
    (
        _gauge("log_min_offset", "bytes", "First byte that the log still has."),
        _gauge("log_end_offset", "bytes", "End of the log: everything below it was appended here."),
        _gauge("durable_offset", "bytes", "Everything below it was fsynced here."),
        _gauge(
            "confirm_offset", "bytes",
            "Everything below it is on all in-sync replicas; consumers see no more.",
        ),
        _gauge(
            "dispatch_behind_bytes", "bytes",
            "Confirmed but not in the queues and the index yet.",
        ),
        _gauge("disk_free_bytes", "bytes", "Free space of the disk that has the store."),
        _gauge("disk_size_bytes", "bytes", "Size of that disk."),
        _counter("files_deleted_total", "files", "Log files deleted because they had expired."),
        _counter(
            "checkpoints_total", "checkpoints",
            "Times at which queues and index were made durable; recovery begins at the last one.",
        ),
    ),
)  # fmt: skip

_CALLS = Section(
    "Calls",
    "All of gRPC, replication left out.",
    (
        _gauge("calls", "calls", "Calls in progress; the limit is limits.calls."),
        _gauge("streams", "streams", "Streams among them; the limit is limits.streams."),
        _gauge("connections", "connections", "Connections that have a call in progress."),
        _counter("calls_started_total", "calls", "Calls that came in."),
        _counter(
            "calls_refused_total", "calls",
            "Calls that ended with an error, by its code in small letters; put requests are "
            "counted by acks_total. `unauthenticated` has callers of HTTP and of replication too.",
            "code",
        ),
    ),
)  # fmt: skip

_BOUNDS = Section(
    "Bounds on labels",
    "Each value of a label is a time series that Prometheus keeps. So a node exports at most "
    "`limits.metric_topics` topics and `limits.metric_groups` groups, and sums the rest under the "
    "value `other`. Of a lag in seconds, `other` has the largest one. A topic or a group that is "
    "really called `other` counts there too.",
    (
        _gauge("metric_topics_folded", "topics", "Topics that are summed under `other`."),
        _gauge(
            "metric_groups_folded", "groups",
            "Groups, or pairs of group and topic, that are summed under `other`: the larger of the "
            "two numbers.",
        ),
    ),
)  # fmt: skip

SECTIONS = (
    _NODE, _PUTS, _READS, _GROUPS, _DELAYS, _WORK, _TRANSACTIONS, _REPLICATION, _ELECTIONS, _LOG,
    _CALLS, _BOUNDS,
)  # fmt: skip
FAMILIES = {family.name: family for section in SECTIONS for family in section.families}

NOT_EXPORTED = {
    "puts_total": "the sum of messages_in_total",
    "put_bytes_total": "the sum of bytes_in_total",
    "put_batches_total": 'acks_total{result="ok"} counts requests',
    "put_refused_total": 'acks_total{result="refused"} has them',
    "get_messages_total": "the sum of messages_out_total",
    "get_bytes_total": "the sum of bytes_out_total",
    "flush_behind_bytes": "log_end_offset - durable_offset",
    "confirm_behind_bytes": "log_end_offset - confirm_offset",
    "reput_behind_bytes": "dispatch_behind_bytes",
    "raw_chunks_total": "replicated_chunks_total",
    "raw_bytes_total": "replicated_bytes_total",
}
"""Numbers of `Admin.stats()` that are other families here, and which ones."""
SUMMARIES = ("put_seconds_", "append_seconds_")
"""Beginnings of the names of summaries in `Admin.stats()`, which are histograms here."""
