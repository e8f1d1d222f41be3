"""The size that a body may have in this process once it is decompressed.

A megabyte may become a gigabyte of zeros, so there is a limit (MOST_UNPACKED in sys_flag.py). A
broker can allow larger messages, and their readers can too:

    TANDEMLOG_MAX_UNPACKED_BYTES=268435456

It is a variable of the environment, since clients, commands and Spark's executors decompress bodies
in many places, and each of them is a process with one.
"""

import os
from functools import cache

from .format.errors import FormatError
from .format.record.sys_flag import COMPRESSED, MOST_UNPACKED, UNPACKED_VARIABLE, decompress_body
from .format.words import shortened

MOST_DIGITS = 18


@cache
def most_unpacked() -> int:
    """In bytes. Raises FormatError for a variable that is not a number of bytes."""
    text = os.environ.get(UNPACKED_VARIABLE, "")
    if not text:
        return MOST_UNPACKED
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text)):
        raise FormatError(f"{UNPACKED_VARIABLE} must be a number of bytes, not {shortened(text)!r}")
    return int(text)


def unpacked(sys_flag: int, body: bytes) -> bytes:
    """`body` as the producer gave it. Raises FormatError as decompress_body does."""
    return decompress_body(sys_flag, body, most_unpacked()) if sys_flag & COMPRESSED else body
