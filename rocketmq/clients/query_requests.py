"""Queries of clients and of mqadmin: requests 12 (by key) and 33 (by position in the log).

`lastKey` of request 12 is not read: a broker 5.5 gives it to an index in RocksDB alone, and its
index files, which are those of a node, answer without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandemlog.format.constants import MAX_QUERY, NO_END

from .read_fields import I32, Fields, flag, integer, text

UNIQUE: Final = "_UNIQUE_KEY_QUERY"
"""The key is a unique message id, of which there is one message or a few that were sent again."""
TAG_INDEX: Final = "T"
"""indexType, of 5.4 and later: the key is a tag. `K` and `U` are the keys and the unique id."""
MOST_UNIQUE: Final = 32


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """At most `max_messages`, the newest; times are store times in ms, inclusive."""

    topic: str
    key: str
    max_messages: int
    begin_timestamp: int
    end_timestamp: int
    tags: bool


def read_key_query(fields: Fields) -> KeyQuery:
    """Raises FormatError."""
    most = integer(fields, "maxNum", MOST_UNIQUE, I32)
    end = integer(fields, "endTimestamp", NO_END)
    return KeyQuery(
        topic=text(fields, "topic"),
        key=text(fields, "key"),
        max_messages=MOST_UNIQUE if flag(fields, UNIQUE) else min(max(most, 1), MAX_QUERY),
        begin_timestamp=max(0, integer(fields, "beginTimestamp", 0)),
        end_timestamp=end if end > 0 else NO_END,
        tags=fields.get("indexType") == TAG_INDEX,
    )


def read_position(fields: Fields) -> int:
    """The log offset of request 33. Raises FormatError."""
    return integer(fields, "offset")


def index_fields(timestamp: int, log_offset: int) -> Mapping[str, str]:
    """How far the index has come: the newest message in it."""
    return {
        "indexLastUpdateTimestamp": str(timestamp),
        "indexLastUpdatePhyoffset": str(log_offset),
    }
