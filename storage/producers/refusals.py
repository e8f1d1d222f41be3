"""Why a request of a producer is refused: which one, both numbers, and the way on."""

from tandemlog.format.constants import PRODUCER_MARK
from tandemlog.format.record.producer_mark import ProducerMark

from ..errors import BatchRefusedError, StoreBusyError


def _refused(
    code: str, mark: ProducerMark, message: str, limit: int, actual: int
) -> BatchRefusedError:
    return BatchRefusedError(
        code,
        PRODUCER_MARK,
        f"producer {mark.producer_id}: {message}",
        limit=limit,
        actual=actual,
        record_index=0,
    )


def conflict(mark: ProducerMark, stored: int, count: int) -> BatchRefusedError:
    return _refused(
        "SEQUENCE_CONFLICT", mark,
        f"sequence {mark.sequence} was sent before with {stored} records, now with "
        f"{count}: repeat the same request, or use a new epoch",
        stored, count,
    )  # fmt: skip


def other_request(mark: ProducerMark) -> BatchRefusedError:
    return _refused(
        "SEQUENCE_CONFLICT", mark,
        f"sequence {mark.sequence} was sent before with other records (their checksum "
        "differs): repeat the same request, or use a new epoch",
        0, 0,
    )  # fmt: skip


def bad_mark(mark: ProducerMark, count: int) -> BatchRefusedError:
    return _refused(
        "BAD_RECORD", mark,
        f"the mark says record {mark.index} of {mark.count}, but it is in record 0 of "
        f"{count}",
        count, mark.count,
    )  # fmt: skip


def unknown(mark: ProducerMark) -> BatchRefusedError:
    return _refused(
        "UNKNOWN_PRODUCER", mark,
        f"sequence {mark.sequence} of a producer that this store does not know, or no "
        "longer knows: start with sequence 0",
        0, mark.sequence,
    )  # fmt: skip


def too_many(mark: ProducerMark, limit: int, own: int) -> StoreBusyError:
    return StoreBusyError(
        f"producer {mark.producer_id} is new, and {limit} producers (producers_kept) "
        f"have sent within the last hour, {own} of them of this identity or host, which has no "
        "fewer than any other: try again later, use fewer producers, or raise producers_kept"
    )


def fenced(mark: ProducerMark, epoch: int) -> BatchRefusedError:
    return _refused(
        "PRODUCER_FENCED", mark,
        f"epoch {mark.epoch} has ended, another instance uses epoch {epoch}",
        epoch, mark.epoch,
    )  # fmt: skip


def gap(mark: ProducerMark, expected: int, why: str) -> BatchRefusedError:
    return _refused(
        "SEQUENCE_GAP", mark,
        f"sequence {mark.sequence} came, but {expected} is next: send {expected} "
        f"first, {why}",
        expected, mark.sequence,
    )  # fmt: skip
