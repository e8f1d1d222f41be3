"""Numbers and names in the messages of every layer.

A name from a request may have any length, and a message that quotes it goes to a log, into a
response, and into the messages of callers that pass it on. So quoted text is shortened here.
"""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

MAX_QUOTED: Final = 200
"""Characters of a name that are quoted: most names that are allowed fit."""

MAX_MESSAGE: Final = 2_000
"""Characters of a message to another process."""


_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""What a terminal obeys, or does not show, or shows elsewhere; not tabulator and newline."""


def visible(text: str) -> str:
    """`text` with control characters, marks of direction and the like as JSON writes them: a name
    from elsewhere must not clear an operator's screen, or turn a line around."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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


def queues_text(queues: Iterable[tuple[str, int]]) -> str:
    """Queues, each (topic, queue id), in short: `orders 0-3,7 refunds 1`."""
    texts = []
    for topic, group in groupby(sorted(queues), key=lambda queue: queue[0]):
        numbers = [queue_id for _, queue_id in group]
        spans: list[list[int]] = []
        for number in numbers:
            if spans and number == spans[-1][-1] + 1:
                spans[-1][1:] = [number]
            else:
                spans.append([number])
        texts.append(f"{topic} {','.join('-'.join(map(str, span)) for span in spans)}")
    return " ".join(texts)
