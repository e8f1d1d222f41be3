"""The delays of a store's delay levels for a rebuild, taken from its schedule queues.

The list of levels is a setting of the broker that no file holds. The newest unit of each schedule
queue and its record say what that queue's level was (`delays_of_queues`).
"""

from pathlib import Path

from tandemlog.format.constants import SCHEDULE_TOPIC
from tandemlog.format.files.queue_unit import DEFAULT_DELAY_LEVELS, DelayLevels, delays_of_queues
from tandemlog.format.record.record import Record

from ..reading.find_record import record_at
from ..reading.log_source import LocalLogSource, LogSource
from ..reading.queue_ends import CONSUME_QUEUE, queue_files, units_of


def stored_delay_levels(source: LogSource) -> str:
    """The levels as a text: RocketMQ's, but for those of which the store's queues say something
    else. Raises OSError."""
    levels = DelayLevels(DEFAULT_DELAY_LEVELS)
    if not isinstance(source, LocalLogSource) or source.files.store is None:
        return levels.text
    directory = Path(source.files.store) / CONSUME_QUEUE
    queues = (
        (units_of(path) for _, path in reversed(files))
        for _, _, files in queue_files(directory, SCHEDULE_TOPIC)
    )
    log = source.connect()

    def stored_record(offset: int) -> Record | None:
        file = source.files.find(offset)
        return record_at(log, offset, file.end) if file is not None else None

    try:
        return levels.with_delays(delays_of_queues(queues, stored_record)).text
    finally:
        log.close()
