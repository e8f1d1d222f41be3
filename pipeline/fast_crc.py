"""The fastest CRC-32 there is: that of zlib-ng where it is installed, else the standard library's.

Both give the same values. A body of 1 KiB takes zlib-ng a fifth of the time, since it multiplies
without carry; the extra `spark` brings it, but an executor that has none reads as well.
"""

from tandemlog.format.crc_columns import Crc32

crc32: Crc32
try:
    from zlib_ng.zlib_ng import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
