"""Records of every kind the format allows, for comparing the columns with the plain decoder."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandemlog.format.constants import MAX_PROPERTIES, SCHEDULE_TOPIC
from tandemlog.format.record.record import Record, decode_record, encode_record

TOPICS = (
    "Orders",
    "P",
    "%RETRY%GID_reader",
    SCHEDULE_TOPIC,
    "topic-with-a-name-of-33-characters",
    "主题",
    "V2-" + "x" * 180,
    "V2-" + "x" * 179 + "y",
)
HOSTS = ("127.0.0.1:5", "10.0.0.5:10911", "[0:0:0:0:0:0:0:1]:5", "[fe80:0:0:0:1:2:3:4]:65535")
NAMES = (
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "DELAY",
    "__TL_SEQ",
    "TAG",
    "TAGSX",
    "XTAGS",
    "K",
    "UNIQ_KEYS",
    "MY_UNIQ_KEY",
    "A_RATHER_LONG_PROPERTY_NAME",
    "ANOTHER_LONG_PROPERTY_NAME",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "REAL_TOPIC",
    "имя",
)
MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94")

values = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=40).map(str.encode),
    st.sampled_from(
        ["k1  k2 ", " ", "  ", "polygenelubricants", "中文", "😀x", "a||b", "3", "-1"]
    ).map(str.encode),
    st.integers(-2, 30).map(lambda number: str(number).encode()),
    st.sampled_from([b"%LMQ%a", b"%LMQ%a,%LMQ%b", b"P,%LMQ%a", b"%RETRY%g", b"7", b"1,2", b"3,4,"]),
    st.binary(max_size=12).map(lambda raw: raw.replace(b"\x02", b"\x03")),
    st.just(b"" * 0),
)
segments = st.one_of(
    st.tuples(st.sampled_from(NAMES), values).map(
        lambda each: each[0].encode() + b"\x01" + each[1]
    ),
    st.tuples(st.sampled_from(NAMES[:3]), values).map(
        lambda each: each[0].encode() + b"\x01" + each[1]
    ),
    st.binary(max_size=10),
)
property_strings = st.tuples(
    st.lists(segments, max_size=7), st.sampled_from([b"", b"\x02", b"\x02\x02"])
).map(lambda each: (b"\x02".join(each[0]) + each[1])[: MAX_PROPERTIES - 21])
bodies = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(MAGICS).map(lambda magic: b"\0\0\1\0" + magic + bytes(300)),
    st.binary(min_size=100, max_size=100),
)


@st.composite
def record_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments for encode_record, without the physical offset. The plain numbers come from one
    seed: there is nothing to find out about them one by one, and draws are slow."""
    numbers = random.Random(draw(st.integers(0, 1 << 32)))
    return {
        "topic": draw(st.sampled_from(TOPICS)),
        "body": draw(bodies),
        "properties": draw(property_strings),
        "queue_id": numbers.randint(-1, 5),
        "flag": numbers.randint(-(2**31), 2**31 - 1),
        "sys_flag": numbers.choice([0, 0, 1, 4, 8, 12, 0x301, 0xC0, 0x30]),
        "born_timestamp": numbers.randrange(2**62),
        "born_host": numbers.choice(HOSTS),
        "queue_offset": numbers.randrange(2**40),
        "store_timestamp": numbers.randrange(2**61),
        "store_host": numbers.choice(HOSTS),
        "reconsume_times": numbers.randrange(20),
        "prepared_transaction_offset": numbers.randrange(2**50),
        "version": numbers.choice([None, None, 2]),
        "property_crc": numbers.random() < 0.3,
    }


@dataclass(frozen=True)
class LogPiece:
    """Records end to end; buffer[0] has the log offset `base_offset`, the first record begins
    at `start`."""

    buffer: bytes
    base_offset: int
    start: int
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.positions)

    @property
    def end(self) -> int:
        return int(self.positions[-1] + self.sizes[-1]) if self.count else self.start

    def records(self) -> list[Record]:
        return [
            decode_record(self.buffer, position, physical_offset=self.base_offset + position)
            for position in self.positions.tolist()
        ]


def log_of(arguments: list[dict[str, Any]], base_offset: int = 0, before: bytes = b"") -> LogPiece:
    """The records of these arguments, at the positions where they say they are."""
    parts, positions, sizes = [before], [], []
    position = len(before)
    for each in arguments:
        encoded = encode_record(**each, physical_offset=base_offset + position)
        parts.append(encoded)
        positions.append(position)
        sizes.append(len(encoded))
        position += len(encoded)
    return LogPiece(
        b"".join(parts),
        base_offset,
        len(before),
        np.array(positions, np.int64),
        np.array(sizes, np.int64),
    )


@st.composite
def log_pieces(draw: st.DrawFn, min_size: int = 0, max_size: int = 6) -> LogPiece:
    arguments = draw(st.lists(record_arguments(), min_size=min_size, max_size=max_size))
    if len(arguments) > 0 and draw(st.booleans()):
        # Some alike, as one producer sends them.
        arguments = arguments + arguments[:1] * draw(st.integers(0, 30)) + arguments[-1:]
    return log_of(
        arguments, draw(st.sampled_from([0, 1 << 30, 5 << 40])), draw(st.binary(max_size=9))
    )
