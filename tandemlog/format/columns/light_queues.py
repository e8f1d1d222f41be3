"""Light queues (LMQ): a record may name further queues, and has a unit in each of them too.

    INNER_MULTI_DISPATCH       %LMQ%a,%LMQ%b    named by the producer
    INNER_MULTI_QUEUE_OFFSET   17,4             its numbers there, written by RocketMQ's broker

They are derived from the log like every queue: a folder `%LMQ%a/0` beside those of the topics. A
broker that does not have the feature on writes no numbers.
"""

import re
from typing import Final

from ..constants import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from ..files.names import names_a_folder

LIGHT_PREFIX: Final = "%LMQ%"
_SEPARATOR: Final = ","
_NUMBER: Final = re.compile("[0-9]{1,18}")


def light_queues(
    topic: str, queue_id: int, names: str, numbers: str, real_topic: str = ""
) -> list[tuple[str, int, int]]:
    """(queue name, queue id, queue offset) of each unit that a record of `topic`/`queue_id` has
    beside its own; `names`, `numbers` and `real_topic` are properties, empty for none.

    What RocketMQ leaves out is left out: its own records, those on their way back to a group (with
    the numbers of their first way), names that are no folders; and a name or number that means
    nothing. A delayed record has numbers where its broker, one before 5.1, put it into the light
    queues at once.
    """
    if topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)):
        return []
    if topic == SCHEDULE_TOPIC and real_topic.startswith(RETRY_PREFIX):
        return []
    queues, offsets = _pieces(names), _pieces(numbers)
    if len(queues) != len(offsets):
        return []
    found: dict[str, tuple[str, int, int]] = {}
    for name, number in zip(queues, offsets, strict=True):
        if not names_a_folder(name) or not _NUMBER.fullmatch(number):
            continue
        place = 0 if name.startswith(LIGHT_PREFIX) else queue_id
        found.setdefault(name, (name, place, int(number)))
    return list(found.values())


def _pieces(text: str) -> list[str]:
    """As Java's split has them: without empty ones at the end."""
    return text.rstrip(_SEPARATOR).split(_SEPARATOR)
