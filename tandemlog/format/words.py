"""Numbers and names in the messages of every layer.

A name from a request may have any length, and a message that quotes it goes to a log, into a
response, and into the messages of callers that pass it on. So quoted text is shortened here.
"""

from typing import Final

MAX_QUOTED: Final = 200
"""Characters of a name that are quoted: most names that are allowed fit."""

MAX_MESSAGE: Final = 2_000
"""Characters of a message to another process."""


def counted(count: int, noun: str, many: str = "") -> str:
    """`1 queue`, `2 queues`; `many` where an s does not make the plural."""
    return f"{count} {noun if count == 1 else many or f'{noun}s'}"


def quoted(name: str) -> str:
    """`name` in quotation marks; of a long one the first characters, and how many it has."""
    if len(name) <= MAX_QUOTED:
        return repr(name)
    return f"{name[:MAX_QUOTED]!r}… ({len(name)} characters)"


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """`text`; of a long one the first `limit` characters, and how many it has."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
