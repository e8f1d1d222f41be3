"""Every family of metrics that a node has (metric_family.py).

This table is the only place for them. The collector (metrics.py) takes a family's type, labels
and help text from here, and docs/monitoring.md is written from it (monitoring_docs.py). A family
that is not in the table cannot be exported.
"""

from .archive_families import ARCHIVE
from .metric_family import Section, counter, gauge, histogram
from .scrub_families import SCRUB

_NODE = Section(
    "The node",
    "",
    (
        gauge("build_info", "", "Always 1; the label is the version of the program.", "version"),
        gauge("uptime_seconds", "seconds", "Time since the store was opened."),
        gauge("role", "0 or 1", "1 on the master, 0 on a slave and on a node without a role."),
        gauge(
            "can_ack", "0 or 1",
            "1 if this node could acknowledge a put now. Exactly one node of a healthy cluster has "
            "1.",
        ),
        gauge(
            "store_failed", "0 or 1",
            "1 if the store has stopped permanently, after a failed fsync for example. The log "
            "says why; the node needs a working disk and a restart.",
        ),
        gauge(
            "clock_jump_seconds", "seconds",
            "How far the machine's clock has jumped, if messages do not have its time: 0 in good "
            "times. It becomes the time of messages if it stays there for ten minutes.",
        ),
        gauge(
            "unreadable_files", "files",
            "Files of the log of which something could not be read, and still cannot: `/health` "
            "and `tandemlog check` name them, readers go to another node.",
        ),
        gauge(
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
        counter(
            "messages_in_total", "messages",
            "Messages stored, by topic. A retry that was stored before does not count.", "topic",
        ),
        counter(
            "bytes_in_total", "bytes",
            "Bytes of stored messages, by topic: bodies, properties and headers. Divided by "
            "messages_in_total it is the mean size of a message.", "topic",
        ),
        histogram(
            "message_size_bytes", "bytes",
            "Bytes of each message in the log: body, properties and headers.",
        ),
        counter(
            "acks_total", "requests",
            "Responses to put requests, by result: ok, timeout (stored here, not confirmed in "
            "time), not_enough_isr (refused: too few in-sync replicas), unknown, refused.",
            "result",
        ),
        histogram(
            "ack_seconds", "seconds",
            "From the arrival of a put to its acknowledgement, for each acknowledged message. The "
            "label is flush mode and replication mode of the node.", "mode",
        ),
        histogram(
            "append_seconds", "seconds",
            "Part of it: checks and write to the log, without fsync, for each message.",
        ),
        histogram(
            "flush_seconds", "seconds", "Duration of each fsync of the log."
        ),
        histogram(
            "confirm_seconds", "seconds",
            "Part of it: from the append of a put request until it was confirmed, by the fsync of "
            "this node or by all in-sync replicas, for each request.",
        ),
        counter(
            "put_duplicates_total", "messages",
            "Messages of retries that were stored before and were not stored again.",
        ),
        counter("put_busy_total", "requests", "Put requests refused: the disk is too slow."),
        gauge("puts_waiting", "requests", "Put requests that wait for their confirmation."),
    ),
)  # fmt: skip

_READS = Section(
    "Reads",
    "",
    (
        counter("messages_out_total", "messages", "Messages read from queues, by topic.", "topic"),
        counter("bytes_out_total", "bytes", "Bytes of messages read, by topic.", "topic"),
        histogram(
            "pull_seconds", "seconds",
            "From the arrival of a pull to its response, without the time that a long poll waited "
            "for a message.",
        ),
        counter("gets_total", "reads", "Reads of one queue; a pull of several queues is several."),
        counter("get_misses_total", "reads", "Those that found no message."),
        counter("queries_total", "queries", "Queries by key, unique id or tag."),
        gauge("long_polls", "pulls", "Pulls that wait for a message now."),
        gauge(
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
        gauge(
            "consumer_lag_messages", "messages",
            "Messages of the topic that are stored and that the group has not committed yet, over "
            "all queues.", "group", "topic",
        ),
        gauge(
            "consumer_lag_seconds", "seconds",
            "Age of the oldest of them: now minus its store time; 0 without lag. An idle topic has "
            "no lag, and a stuck group's lag grows by a second each second.", "group", "topic",
        ),
        gauge(
            "group_members", "members",
            "Members of the group, on the master; RocketMQ's consumers on every node. A group "
            "without members, because its consumers choose their queues themselves, and any other "
            "group on a slave: connections that pulled or committed for it in the last 90 s.",
            "group",
        ),
        gauge("groups_with_members", "groups", "Groups that have members; 0 on a slave."),
        gauge(
            "groups_reconciling", "groups",
            "Groups whose queues are on their way to other members. One that stays so for longer "
            "than its rebalance timeout has a member that does not give up a queue.",
        ),
        counter(
            "group_rebalances_total", "rebalances",
            "New assignments of queues, because members, subscriptions or topics changed.",
        ),
        counter(
            "group_fenced_commits_total", "offsets",
            "Offsets that were not committed, because their queue belongs to another member. Many "
            "of them: members are slower than their session timeout, and others do their work "
            "again.",
        ),
        counter(
            "group_members_removed_total", "members",
            "Members that left, timed out or were replaced; the log says which, and why.",
        ),
        counter(
            "group_messages_out_total", "messages", "Messages that the group has pulled here.",
            "group",
        ),
        counter("group_bytes_out_total", "bytes", "Bytes that it has pulled here.", "group"),
        counter(
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
        gauge("delayed_messages", "messages", "Messages that wait for their time."),
        gauge(
            "delayed_messages_by_due",
            "messages",
            "The same by when they come: `now` those that are due, `1m`, `1h` and `1d` those that "
            "come within that time, `later` the rest. Each message counts once.",
            "due",
        ),
        gauge(
            "delayed_overdue_seconds",
            "seconds",
            "For how long the first message that is due has waited for the master; 0 if none is, "
            "and on a slave. It stays below a second in a healthy cluster.",
        ),
        counter("delayed_delivered_total", "messages", "Messages that came."),
        counter("delayed_recalled_total", "messages", "Messages that were called back."),
        counter(
            "delayed_set_aside_total",
            "messages",
            "Messages that could not come and are tried again each minute: their record cannot be "
            "read, or the log does not take it. The node's log names them.",
        ),
        counter(
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
        gauge("work_unacked", "messages", "Messages that were delivered and are not done."),
        gauge("work_leased", "messages", "Those of them that a consumer has now."),
        gauge(
            "work_oldest_unacked_seconds",
            "seconds",
            "How long ago the oldest of these was first delivered; 0 if there is none. `tandemlog "
            "group describe` shows whose it is.",
        ),
        gauge("work_receives_waiting", "receives", "Consumers that wait for a message."),
        counter(
            "work_delivered_total",
            "messages",
            "Deliveries, the first one of a message or a later one.",
        ),
        counter("work_redelivered_total", "messages", "Deliveries that were not the first one."),
        counter("work_acknowledged_total", "messages", "Messages that consumers have ended."),
        counter("work_retried_total", "messages", "Messages that consumers have failed."),
        counter(
            "work_expired_total",
            "messages",
            "Leases that ended without an answer: handlers are slower than the lease and do not "
            "extend it, or consumers die.",
        ),
        counter(
            "work_set_aside_total",
            "messages",
            "Messages that the disk could not read when their turn came: they are tried again "
            "every minute, and others are delivered meanwhile, unless their group keeps an order. "
            "The log names them.",
        ),
        counter("work_dead_letters_total", "messages", "Messages that became dead letters."),
        counter(
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
        gauge("transactions_open", "transactions", "Transactions that have not ended."),
        gauge(
            "transactions_oldest_seconds",
            "seconds",
            "Age of the oldest of them; 0 if none is open. Its producers are asked about it after "
            "transactions.check_after_ms.",
        ),
        counter("transactions_committed_total", "transactions", "Transactions committed."),
        counter("transactions_rolled_back_total", "transactions", "Transactions rolled back."),
        counter(
            "transactions_given_up_total",
            "transactions",
            "Those among them that no producer has decided.",
        ),
        counter(
            "transactions_checks_total",
            "checks",
            "How often the master has asked producers about a transaction.",
        ),
        counter(
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
        gauge("isr_size", "nodes", "In-sync replicas, the master included."),
        gauge(
            "isr_min", "nodes",
            "In-sync replicas that a put needs (`replication.min_in_sync`).",
        ),
        gauge(
            "under_min_isr", "0 or 1",
            "1 if there are fewer in-sync replicas than a put needs: puts are refused.",
        ),
        gauge("isr_member", "0 or 1", "1 if the peer is in the in-sync set.", "peer"),
        gauge(
            "replication_lag_bytes", "bytes",
            "How far the slave's durable log is behind the end of the master's.", "peer",
        ),
        gauge(
            "replication_lag_seconds", "seconds",
            "Time since the slave last had the whole log of the master.", "peer",
        ),
        gauge(
            "alarms", "0 or 1",
            "1 if the peer may hold acknowledged messages that this master lacks (see "
            "replication.md). `/health` and the log say what to do.", "peer",
        ),
        counter(
            "replicated_chunks_total", "chunks", "Pieces of log that this slave took from a master."
        ),
        counter(
            "replicated_bytes_total", "bytes", "Bytes of log that this slave took from a master."
        ),
    ),
)  # fmt: skip

_ELECTIONS = Section(
    "Elections",
    "Only where the cluster elects its master (`coordinator.endpoints`), except `epoch`.",
    (
        gauge("epoch", "", "Number of the term in which the node is; it only grows."),
        gauge(
            "leader_lease_remaining_seconds", "seconds",
            "How long this master may still count on its lease; 0 on other nodes.",
        ),
        gauge(
            "coordinator_last_success_age_seconds", "seconds",
            "Time since the coordinator last answered; -1 if it never did.",
        ),
        gauge(
            "coordinator_last_accepted_age_seconds", "seconds",
            "Time since the coordinator last accepted a change of this node, which it tries every "
            "few seconds; -1 if it never did. While it answers and accepts none, no node can be "
            "elected.",
        ),
        gauge(
            "coordinator_epoch", "",
            "The newest term that the coordinator has given, as this node sees it; 0 if it has not "
            "read it yet. No node has a higher `epoch`, unless it led by its configuration.",
        ),
        gauge("paused", "0 or 1", "1 while an operator has paused failover."),
        counter("elections_total", "terms", "Terms that this node has begun since its start."),
        gauge(
            "unclean_epoch", "",
            "The newest term that may have begun without acknowledged messages; 0 if none did. "
            "With async replication each failover is one of these.",
        ),
        counter(
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
        gauge("log_min_offset", "bytes", "First byte that the log still has."),
        gauge("log_end_offset", "bytes", "End of the log: everything below it was appended here."),
        gauge("durable_offset", "bytes", "Everything below it was fsynced here."),
        gauge(
            "confirm_offset", "bytes",
            "Everything below it is on all in-sync replicas; consumers see no more.",
        ),
        gauge(
            "dispatch_behind_bytes", "bytes",
            "Confirmed but not in the queues and the index yet.",
        ),
        gauge("disk_free_bytes", "bytes", "Free space of the disk that has the store."),
        gauge("disk_size_bytes", "bytes", "Size of that disk."),
        counter("files_deleted_total", "files", "Log files deleted because they had expired."),
        counter(
            "checkpoints_total", "checkpoints",
            "Times at which queues and index were made durable; recovery begins at the last one.",
        ),
    ),
)  # fmt: skip

_CALLS = Section(
    "Calls",
    "All of gRPC, replication left out.",
    (
        gauge("calls", "calls", "Calls in progress; the limit is limits.calls."),
        gauge("streams", "streams", "Streams among them; the limit is limits.streams."),
        gauge("connections", "connections", "Connections that have a call in progress."),
        counter("calls_started_total", "calls", "Calls that came in."),
        counter(
            "calls_refused_total", "calls",
            "Calls that ended with an error, by its code in small letters; put requests are "
            "counted by acks_total. `unauthenticated` has callers of HTTP and of replication too.",
            "code",
        ),
    ),
)  # fmt: skip

_DOORS = Section(
    "RocketMQ's clients",
    "On nodes with `[rocketmq_clients]`. The label `door` is the wire: `remoting`, or `grpc` of "
    "the 5.x API. What these clients store and read is in messages_in_total, messages_out_total "
    "and group_messages_out_total too, and their connections and calls count in the bounds of all "
    "callers.",
    (
        counter(
            "rocketmq_requests_total",
            "requests",
            "Requests that were answered, by RocketMQ's names of the request and of the code of "
            "the answer: PULL_MESSAGE and PULL_NOT_FOUND, or ReceiveMessage and MESSAGE_NOT_FOUND, "
            "for example. A name that RocketMQ does not have is `other`. A request that a slave "
            "handed on counts on both nodes.",
            "door",
            "request",
            "result",
        ),
        gauge(
            "rocketmq_connections",
            "connections",
            "Connections that are open; of gRPC, those with a call or a stream in progress.",
            "door",
        ),
        gauge(
            "rocketmq_clients",
            "clients",
            "Producers and consumers that send heartbeats to this node; of the 5.x API, those with "
            "a Telemetry stream here, or on a node that hands it on.",
            "door",
        ),
        gauge(
            "rocketmq_parked_requests",
            "requests",
            "Requests for the master that wait until one is known: above 0 in a failover.",
            "door",
        ),
        counter(
            "rocketmq_handed_on_total",
            "requests",
            "Requests that this node handed on to the master.",
            "door",
        ),
        counter(
            "rocketmq_repeated_total",
            "requests",
            "Those among them that were handed on again, because the connection to the master was "
            "lost before it answered. The master finds what the first copy has stored.",
            "door",
        ),
    ),
)

_BOUNDS = Section(
    "Bounds on labels",
    "Each value of a label is a time series that Prometheus keeps. So a node exports at most "
    "`limits.metric_topics` topics and `limits.metric_groups` groups, and sums the rest under the "
    "value `other`. Of a lag in seconds, `other` has the largest one. A topic or a group that is "
    "really called `other` counts there too.",
    (
        gauge("metric_topics_folded", "topics", "Topics that are summed under `other`."),
        gauge(
            "metric_groups_folded", "groups",
            "Groups, or pairs of group and topic, that are summed under `other`: the larger of the "
            "two numbers.",
        ),
    ),
)  # fmt: skip

SECTIONS = (
    _NODE, _PUTS, _READS, _GROUPS, _DELAYS, _WORK, _TRANSACTIONS, _REPLICATION, _ELECTIONS, _LOG,
    ARCHIVE, SCRUB, _CALLS, _DOORS, _BOUNDS,
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
