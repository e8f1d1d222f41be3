"""The properties of a message as a broker stores them, from those that its client has sent.

    sent      WAIT=true TAGS=pay n=0 UNIQ_KEY=FD..
    stored    MSG_REGION=.. UNIQ_KEY=FD.. CLUSTER=.. TAGS=pay WAIT=true TRACE_ON=true n=0

A broker reads them into a map, puts in its own, and writes them in the order of that map: a Java
HashMap that begins with 128 places. A name's place is the lower bits of its hash, mixed; two names
of one place stand in the order in which they came. So the text is the same as a broker's, byte for
byte. The order of a set of names is worked out once and kept.

A client may not say what only a store knows: what it has of that (it copied another message) is
left out.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from tandemlog.format.constants import (
    CLUSTER,
    CRC32,
    DELAY,
    DUE,
    MULTI_QUEUE_OFFSET,
    PRODUCER_MARK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMERS,
    TRANSACTION,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
)
from tandemlog.format.java_hash import java_hash

MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
POP_CHECKPOINT: Final = "POP_CK"
REGION: Final = "DefaultRegion"
"""RocketMQ's regionId where none is set."""
OF_THE_STORE: Final = frozenset(
    {
        CRC32,
        DUE,
        MULTI_QUEUE_OFFSET,
        POP_CHECKPOINT,
        PRODUCER_MARK,
        REAL_QUEUE_ID,
        REAL_TOPIC,
        TIMER_ROLL_TIMES,
        TRANSACTION,
    }
)
"""What a client cannot say."""
ASKS: Final = frozenset({DELAY, TIMER_OUT_MS, TRANSACTION_PREPARED, *TIMERS})
"""Properties that ask for more than to be stored."""
_NOT_PLAIN: Final = OF_THE_STORE | ASKS
_NO_WAIT: Final = f"{WAIT}\x01false"
_KEY_AT: Final = len(UNIQ_KEY) + 1
_NOT_OF_MEMBERS: Final = frozenset(name.encode() for name in OF_THE_STORE | ASKS)
MEMBER_HINTS: Final = (b"__", b"REAL_", b"TIMER_", b"INNER_", b"DELAY", b"POP_CK", b"TRAN_MSG")
"""Each name that a message of a batch may not have has one in it, and few other names have."""
_PLACES: Final = 128
_ORDERS_KEPT: Final = 4096
_MOST_NAMES_KEPT: Final = 64
"""Of one message; the order of more is worked out again each time."""


class BrokerFacts(NamedTuple):
    """What a broker writes into every message."""

    cluster: str
    region: str = REGION
    trace: bool = True


def read_properties(text: str) -> dict[str, str]:
    """The properties in a header's text, without those of the store. As a broker reads them: a
    segment that is no property is left out, and of a name that comes twice the last value counts.
    """
    properties = {}
    for segment in text.split("\x02"):
        name, _, value = segment.partition("\x01")
        if name and value:
            properties[name] = value
    if not OF_THE_STORE.isdisjoint(properties):
        for name in OF_THE_STORE.intersection(properties):
            del properties[name]
    return properties


def add_broker_facts(properties: dict[str, str], facts: BrokerFacts) -> None:
    """Put in what a broker puts in beside UNIQ_KEY, which comes before."""
    properties[MSG_REGION] = facts.region
    properties[TRACE_ON] = "true" if facts.trace else "false"
    properties[CLUSTER] = facts.cluster


def stored_properties(properties: dict[str, str]) -> bytes:
    """The text as it is stored. Raises UnicodeEncodeError for half a surrogate pair."""
    names = tuple(properties)
    order = _kept_order(names) if len(names) <= _MOST_NAMES_KEPT else java_order(names)
    return "".join([f"{name}\x01{properties[name]}\x02" for name in order]).encode()


class StoredText(NamedTuple):
    """The properties of a message as they are stored, its UNIQ_KEY, and whether its sender waits
    until it is confirmed."""

    text: bytes
    key: str
    waits: bool


class _Layout(NamedTuple):
    """Of messages whose properties have the same names: which segment comes where in the record
    (behind the sent ones those of the broker), and which of the sent ones are UNIQ_KEY and WAIT."""

    order: Callable[[Sequence[str]], tuple[str, ...]]
    key: int
    wait: int | None


class PlainTexts:
    """Properties of messages that ask for nothing but to be stored, which are nearly all: their
    segments are put in the order of a broker's map as they came, without a map."""

    def __init__(self, facts: BrokerFacts) -> None:
        added: dict[str, str] = {}
        add_broker_facts(added, facts)
        self._names = tuple(added)
        self._segments = [f"{name}\x01{value}" for name, value in added.items()]
        self._kept = lru_cache(maxsize=_ORDERS_KEPT)(self._layout)

    def of(self, text: str) -> StoredText | None:
        """Of the properties in a header's text; None for one that `read_properties` has to read: a
        segment is no property, a name comes twice, or asks for more than to be stored, or is the
        store's, or a letter has no stored form."""
        segments = text.split("\x02")
        if not segments[-1]:
            segments.pop()
        names = []
        for each in segments:
            end = each.find("\x01")
            if not 0 < end < len(each) - 1:
                return None
            names.append(each[:end])
        if not 0 < len(names) <= _MOST_NAMES_KEPT:
            return None
        layout = self._kept(tuple(names))
        if layout is None:
            return None
        try:
            stored = "\x02".join((*layout.order([*segments, *self._segments]), "")).encode()
        except UnicodeEncodeError:
            return None
        waits = layout.wait is None or segments[layout.wait] != _NO_WAIT
        return StoredText(stored, segments[layout.key][_KEY_AT:], waits)

    def _layout(self, names: tuple[str, ...]) -> _Layout | None:
        all_names = names + self._names
        distinct = set(all_names)
        if UNIQ_KEY not in names or len(distinct) < len(all_names) or distinct & _NOT_PLAIN:
            return None
        order = itemgetter(*map(all_names.index, java_order(all_names)))
        return _Layout(order, names.index(UNIQ_KEY), names.index(WAIT) if WAIT in names else None)


def member_properties(text: bytes) -> bytes:
    """Those of a message of a batch: a broker stores them as they came, with the last 0x02. Without
    those that ask for a delay or a transaction, which a message of a batch does not get."""
    if not text:
        return text
    if not text.endswith(b"\x02"):
        text += b"\x02"
    if not any(name in text for name in MEMBER_HINTS):
        return text
    segments = text.split(b"\x02")[:-1]
    kept = [each for each in segments if each.partition(b"\x01")[0] not in _NOT_OF_MEMBERS]
    return b"".join([each + b"\x02" for each in kept])


def java_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, which came in this order, in that of a HashMap that began with 128 places."""
    places = _PLACES
    while len(names) > places * 3 // 4:
        places *= 2
    return tuple(sorted(names, key=lambda name: _place(name, places)))


_kept_order: Final = lru_cache(maxsize=_ORDERS_KEPT)(java_order)


def _place(name: str, places: int) -> int:
    value = java_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (places - 1)
