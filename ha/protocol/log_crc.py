"""The checksum by which two nodes find out that they hold the same bytes of the log.

A slave computes it over its log, the master over its own: both must read in the same way.
"""

from tandemlog.format.fast_crc import crc32

from ..errors import HaError
from ..store_port import StorePort


def log_crc(store: StorePort, start: int, end: int) -> int:
    """CRC-32 of the log's bytes start..end, read piece by piece. Raises HaError if the log ends
    before, as one does that was cut meanwhile."""
    crc, position = 0, start
    while position < end:
        piece = store.log.read(position, min(end - position, 1 << 20))
        if not len(piece):
            raise HaError(f"the log ends at {position}, but bytes {start}..{end} were requested")
        crc = crc32(piece, crc)
        position += len(piece)
    return crc
