"""What this node says of its own log when another node asks: is your copy of a block as mine?

    asked                                    answer
    start, end, the other's checksum         the same: whole. Else whole or damaged by its records
    start, no end: mine is damaged           the block that begins there, and where it ends
    bytes that are not confirmed here,       absent: nothing is said of them
    or of a log with another history

Both logs must be the same up to the end of the block: their histories say so (log_history.py).
"""

from dataclasses import dataclass

from tandemlog.format.files.log_history import LogHistory

from ..errors import OffsetOutOfRangeError, StoreClosedError, UnreadableError
from .block_check import BLOCK, LONGEST, check_given, check_next, checksum_of
from .log_blocks import LogBlocks
from .scrubbed_store import ScrubbedStore, scrub_limit
from .verdicts import CopyState


@dataclass(frozen=True, slots=True)
class BlockQuestion:
    """Of a node whose log has `history` and holds records up to `limit`. `end` is 0 where it does
    not know where the block ends; `checksum` is that of its copy, if that is whole."""

    start: int
    end: int
    limit: int
    checksum: bytes
    history: LogHistory


@dataclass(frozen=True, slots=True)
class BlockAnswer:
    """`end` and `checksum` are of a copy that is whole; `fault` says what is wrong with one that
    is not."""

    state: CopyState
    end: int = 0
    checksum: bytes = b""
    fault: str = ""


ABSENT = BlockAnswer(CopyState.ABSENT)


def answer(store: ScrubbedStore, asked: BlockQuestion) -> BlockAnswer:
    """See the module. Reads the disk."""
    cuts = store.log.cuts
    # a record ends at each of them, in a log that is whole
    limit = min(
        asked.limit, scrub_limit(store), asked.history.cut_against(store.log_identity.history)
    )
    if not store.log.min_offset <= asked.start < (asked.end or limit) <= limit:
        return ABSENT
    if asked.end - asked.start > LONGEST:
        return ABSENT
    blocks = LogBlocks(store.log, store.files, cold=False)
    try:
        found = _answer(store, asked, limit, blocks)
        # cut meanwhile: the bytes may be those of another history than was compared
        return found if store.log.cuts == cuts else ABSENT
    except UnreadableError as error:
        return BlockAnswer(CopyState.UNREADABLE, fault=str(error))
    except (OffsetOutOfRangeError, StoreClosedError):
        return ABSENT  # dropped or cut a moment ago
    finally:
        blocks.close()


def _answer(
    store: ScrubbedStore, asked: BlockQuestion, limit: int, blocks: LogBlocks
) -> BlockAnswer:
    property_crc, file_size = store.config.property_crc, store.log.file_size
    if not asked.end:
        block = check_next(blocks.read, asked.start, limit, file_size, property_crc=property_crc)
        if block.fault:
            return BlockAnswer(CopyState.DAMAGED, fault=block.fault)
        return BlockAnswer(CopyState.WHOLE, block.end, block.checksum)
    data = blocks.read(asked.start, asked.end - asked.start)
    checksum = checksum_of(data)
    if checksum != asked.checksum:
        fault = check_given(data, asked.start, file_size, property_crc=property_crc)
        if fault:
            return BlockAnswer(CopyState.DAMAGED, fault=fault)
    return BlockAnswer(CopyState.WHOLE, asked.end, checksum)


def read_piece(store: ScrubbedStore, start: int, end: int) -> bytes:
    """The first BLOCK bytes of start .. end-1, which are confirmed here and lie in one file. Raises
    OffsetOutOfRangeError, UnreadableError."""
    if not store.log.min_offset <= start < end <= scrub_limit(store):
        raise OffsetOutOfRangeError(start, store.log.min_offset, scrub_limit(store))
    blocks = LogBlocks(store.log, store.files, cold=False)
    try:
        return blocks.read(start, min(end - start, BLOCK))
    finally:
        blocks.close()
