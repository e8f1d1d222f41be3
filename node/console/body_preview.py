"""The begin of a message's body, for people: as text where it is text, as hex where it is not.

    {"size": 12345, "text": "…", "hex": null, "cut": true}      size in bytes, of the whole body

Text is UTF-8 without control characters but tab and line ends. A preview that ends inside a
character leaves that out.
"""

import codecs
from collections.abc import Callable, Mapping
from typing import Any

from tandemlog.errors import BadRecordError
from tandemlog.format.errors import FormatError

PREVIEW_BYTES = 4_096
_BLANKS = frozenset("\t\n\r")


def preview(body: Callable[[], bytes]) -> Mapping[str, Any]:
    """Of what `body` returns; of a body that cannot be read, the `fault`."""
    try:
        data = body()
    except (BadRecordError, FormatError) as error:
        return {"size": None, "text": None, "hex": None, "cut": False, "fault": str(error)}
    head = data[:PREVIEW_BYTES]
    text = _text(head, whole=len(head) == len(data))
    return {
        "size": len(data),
        "text": text,
        "hex": head.hex(" ") if text is None else None,
        "cut": len(head) < len(data),
        "fault": "",
    }


def _text(head: bytes, *, whole: bool) -> str | None:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return None
    plain = all(each.isprintable() or each in _BLANKS or ord(each) >= 0xA0 for each in text)
    return text if plain else None
