"""The queues of units: known ones are found, new ones registered once, impossible ones named."""

import numpy as np
import pytest

from tandemlog.format.columns.dispatch import UnitColumns
from tandemlog.format.files.queue_unit import UNIT_DTYPE
from tandemlog_server.storage.errors import CorruptStoreError
from tandemlog_server.storage.queues.queue_table import QueueTable, register_queues

TOPICS = ("A", "B")


def units_to(*queues: tuple[int, int]) -> UnitColumns:
    """Units to these (index into TOPICS, queue id), their records 100 bytes apart."""
    count = len(queues)
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"] = np.arange(count) * 100
    return UnitColumns(
        topics=TOPICS,
        topic_index=np.array([topic for topic, _ in queues], np.int64),
        queue_id=np.array([queue_id for _, queue_id in queues], np.int32),
        queue_offset=np.zeros(count, np.int64),
        units=units,
    )


def test_new_queues_are_registered_by_first_appearance() -> None:
    table = QueueTable()
    table.register("B", 1)
    found = units_to((1, 1), (1, 0), (0, 2), (1, 0), (1, 1), (0, 2))
    assert register_queues(table, found).tolist() == [0, 1, 2, 1, 0, 2]
    assert table.names() == [("B", 1), ("B", 0), ("A", 2)]
    assert register_queues(table, found).tolist() == [0, 1, 2, 1, 0, 2]
    assert table.count == 3


def test_a_queue_that_cannot_be_is_named_with_its_first_record() -> None:
    with pytest.raises(CorruptStoreError, match="queue id -5 of A") as fault:
        register_queues(QueueTable(), units_to((1, 0), (0, -5), (0, -5)))
    assert "100" in str(fault.value)
