"""The handle by which a message that has not come yet is called back.

    base64url("v1 topic broker time key log_offset")        RocketMQ's form, and one word more

RocketMQ reads the first five words, and finds the message by its key among those of the second
`time`. The log offset of the waiting record, which only tandemlog writes, names one message.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from ..errors import FormatError
from .timing import MOST_DIGITS, out_ms

_VERSION: Final = "v1"
_WORDS: Final = 5
MOST_CHARACTERS: Final = 2048
ANY_BROKER: Final = "-"


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """`time_ms` is TIMER_OUT_MS + 1, as a broker has it; `key` the message's UNIQ_KEY;
    `log_offset` -1 in a handle of a broker."""

    topic: str
    time_ms: int
    key: str
    log_offset: int = -1
    broker: str = ANY_BROKER

    def encode(self) -> str:
        words = [_VERSION, self.topic, self.broker, str(self.time_ms), self.key]
        if self.log_offset >= 0:
            words.append(str(self.log_offset))
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def handle_of(topic: str, due_ms: int, key: str, log_offset: int) -> RecallHandle:
    """Of the message with this UNIQ_KEY that waits in the record at `log_offset`."""
    return RecallHandle(topic, out_ms(due_ms) + 1, key, log_offset)


def decode_handle(text: str) -> RecallHandle:
    """Raises FormatError for a text that is no handle."""
    if len(text) > MOST_CHARACTERS:
        raise FormatError(f"a recall handle of {len(text)} characters: {MOST_CHARACTERS} at most")
    try:
        words = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error) as error:
        raise FormatError(f"recall handle {text[:80]!r}: it is not base64 text") from error
    version, *rest = words.split(" ")
    if version != _VERSION or len(rest) + 1 < _WORDS or not rest[0] or not rest[3]:
        raise FormatError(f"recall handle {text[:80]!r}: it is not what a send has returned")
    offset = rest[4] if len(rest) >= _WORDS else ""
    return RecallHandle(rest[0], _number(rest[2], text), rest[3], _offset(offset, text), rest[1])


def _offset(word: str, text: str) -> int:
    return _number(word, text) if word else -1


def _number(word: str, text: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS + 1):
        raise FormatError(f"recall handle {text[:80]!r}: {word[:20]!r} in it is no number")
    return int(word)
