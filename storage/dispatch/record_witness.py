"""What single records of the log say, for a queue that does not agree with the log.

A broker counts a queue from 0 again if its files are gone, as after its topic was deleted; a master
of ours never does. Whose a record is tells its place: before the first epoch of the log (0 stands
for what there was before), a broker wrote it. Behind that either may have written it: a relay has
epochs and takes a broker's bytes, and a broker may have continued with a store of ours. There one
flipped bit in a number must not begin a queue again, so two records in a row have to tell it, or
one with the property `CLUSTER`, which brokers write into every message that was sent alone; and
none with the mark of our producers.
"""

from collections.abc import Callable

from tandemlog.format.columns.dispatch import unit_columns
from tandemlog.format.constants import CLUSTER, PRODUCER_MARK
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochTable
from tandemlog.format.record.record import decode_record

from ..errors import StoreError
from .dispatch_source import DispatchSource, LogPort


class RecordWitness:
    """See the module, and `mending.Records`."""

    def __init__(self, log: LogPort, epochs: Callable[[], EpochTable]) -> None:
        self._log = log
        self._source = DispatchSource(log, index=False)
        self._epochs = epochs

    def holds(self, topic: str, queue_id: int, queue_offset: int, unit: tuple[int, int]) -> bool:
        log_offset, size = unit
        try:
            found = unit_columns(self._source.batch(log_offset, log_offset + size, size).columns)
        except (StoreError, FormatError):
            return False
        rows = zip(
            found.topic_index.tolist(), found.queue_id.tolist(), found.queue_offset.tolist(),
            strict=True,
        )  # fmt: skip
        return (topic, queue_id, queue_offset) in [(found.topics[t], q, n) for t, q, n in rows]

    def may_begin_again(self, log_offset: int, size: int, *, alone: bool) -> bool:
        ours = next((each for each in self._epochs().entries if each.epoch), None)
        if ours is None or log_offset < ours.start_offset:
            return True
        try:
            record = decode_record(self._log.read(log_offset, size), physical_offset=log_offset)
        except (StoreError, FormatError):
            return False
        if PRODUCER_MARK in record.properties:
            return False
        return not alone or CLUSTER in record.properties
