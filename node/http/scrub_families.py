"""The metrics of the scrub (metric_families.py)."""

from .metric_family import Section, counter, gauge

SCRUB = Section(
    "The scrub",
    "Each node reads its log again, compares it with the other nodes, and mends what is damaged. "
    "Counters begin with the process. `tandemlog scrub status` names the blocks.",
    (
        counter("scrub_bytes_total", "bytes", "Bytes of the log that were checked."),
        counter(
            "scrub_damaged_blocks_total",
            "blocks",
            "Blocks that were found damaged, or could not be read; each time that one is found.",
        ),
        counter(
            "scrub_mended_blocks_total",
            "blocks",
            "Blocks that were replaced by the bytes of other nodes.",
        ),
        counter(
            "scrub_failed_mendings_total",
            "blocks",
            "Blocks that could not be mended although another node has them; the log of the node "
            "says why, and it is tried again.",
        ),
        counter(
            "scrub_rebuilt_queues_total",
            "queues",
            "Consume queues that did not have what the log has, and were rebuilt.",
        ),
        counter(
            "scrub_mended_index_entries_total",
            "entries",
            "Entries, slots and pages of index files that were not as the log has it, and were "
            "written again.",
        ),
        gauge(
            "scrub_lost_blocks",
            "blocks",
            "Damaged blocks of which no node that was asked has a whole copy.",
        ),
        gauge(
            "scrub_doubtful_blocks",
            "blocks",
            "Blocks of which copies differ without a majority, or that wait to be mended.",
        ),
        gauge(
            "scrub_round_age_seconds",
            "seconds",
            "Time since the last round through the log began; 0 before the first.",
        ),
    ),
)
