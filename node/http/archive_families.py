"""The families of metrics of a node's archiver, and of reads of the archive."""

from .metric_family import Section, counter, gauge

ARCHIVE = Section(
    "Archive",
    "Only with `archive.url`. Every node looks at it once a minute, one of them writes it.",
    (
        gauge(
            "archive_working",
            "0 or 1",
            "1 on the node that archives. No node for more than a minute: `tandemlog check` says "
            "why.",
        ),
        gauge(
            "archive_failed",
            "0 or 1",
            "1 if this node should archive and cannot; `tandemlog check` says why.",
        ),
        gauge(
            "archive_end_offset",
            "bytes",
            "Log offset up to which the archive goes, as far as this node knows.",
        ),
        gauge(
            "archive_behind_bytes",
            "bytes",
            "How much is confirmed and not archived, as far as this node knows.",
        ),
        counter(
            "archive_put_bytes_total",
            "bytes",
            "Bytes of objects that this node has put into the archive.",
        ),
        counter(
            "archive_read_messages_total",
            "",
            "Messages below the log's begin that readers got from the archive.",
        ),
        counter(
            "archive_read_bytes_total",
            "bytes",
            "Bytes of objects that were read for that.",
        ),
        counter(
            "archive_read_seconds_total",
            "s",
            "Time that these reads took.",
        ),
        counter(
            "archive_read_failures_total",
            "",
            "Reads of objects that failed, or gave damaged bytes. Readers get an error, and ask "
            "again.",
        ),
        counter(
            "archive_cache_hits_total",
            "",
            "Blocks and indexes of the archive that were in memory.",
        ),
        counter(
            "archive_cache_misses_total",
            "",
            "Blocks and indexes of the archive that had to be read.",
        ),
        gauge(
            "archive_cache_bytes",
            "bytes",
            "Memory of what was read of the archive last; `archive.cold_cache_bytes` is its bound.",
        ),
    ),
)
