"""Topics that a damaged `topics.json` has lost: rebuilt from the queues that there are.

The backup of the table is one change older. It may lack the newest topic; then its messages would
exist, but clients could no longer put or pull, and a master would send the shorter table to its
slaves too. A topic with messages has queues, and these tell its name and how many they
are; permissions and attributes are those of a new topic. A deleted topic that still has messages
comes back too: an operator notices that and deletes it again, but would not notice a lost one. An
empty topic leaves no trace, so the report warns that the newest one may be missing.
"""

import logging

from tandemlog.format.constants import is_system_topic, topic_fault
from tandemlog.format.words import counted

from ..metadata.topics import MAX_QUEUES, TopicConfig
from ..store_parts import StoreParts
from .recovery_report import RecoveryReport

logger = logging.getLogger(__name__)


def restore_topics(parts: StoreParts, report: RecoveryReport) -> None:
    """Once queues are loaded and the log is dispatched. Raises DiskFullError or StoreReadOnlyError
    if the table cannot be written."""
    if not parts.topics.note:
        return
    highest: dict[str, int] = {}
    for topic, queue_id in parts.queue_table.names():
        highest[topic] = max(highest.get(topic, 0), queue_id)
    lost = [
        TopicConfig(topic, max(8, queue_id + 1), max(8, queue_id + 1))
        for topic, queue_id in sorted(highest.items())
        if topic not in parts.topics.table
        and not is_system_topic(topic)
        and topic_fault(topic, new=False) is None
        and queue_id < MAX_QUEUES
    ]
    note = (
        "topics.json was restored from its backup: the last topic that was created "
        "or changed may be missing"
    )
    if lost:
        parts.topics.restore(lost, parts.clock.now_ms())
        names = ", ".join(topic.name for topic in lost[:5])
        note += (
            f"; {counted(len(lost), 'topic')} with messages created again: {names}"
            + (" and others" if len(lost) > 5 else "")
            + " (check their queues, permissions and attributes)"
        )
    logger.warning(note)
    report.notes.append(note)
