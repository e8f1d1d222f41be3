"""The fixed headers of many records as columns, and the checks that make them trusted.

    record   | header, 88 bytes | body | topic length, topic | properties length, properties |
             '-- copied for all, '------ found through the body length and the two others ----'
                 as one array

All headers are copied at once through a window view (ragged.py). A record with an IPv6 host has
a longer header: those are read by a layout of their own and brought into the same form, without
the hosts, which stay in the buffer (born_host_start, store_host_start).

Headers of anything can be gathered, of no record too: positions derived from a wrong length are
kept inside the record, and `well_formed` says which rows hold together (see faults.py).
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, Item, all_true, byte_array, none_true, windows
from ..constants import (
    BORN_HOST_OFFSET,
    FIXED_SIZE,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
)
from ..record.host import IPV4_SIZE, IPV6_SIZE
from ..record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6


def header_dtype(born_host_size: int, store_host_size: int) -> np.dtype[np.void]:
    """The fixed header as a packed structure, for hosts of 8 or 20 bytes each."""
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">u4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"V{born_host_size}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store_host_size}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


HEADER_DTYPE: Final = header_dtype(IPV4_SIZE, IPV4_SIZE)
assert HEADER_DTYPE.itemsize == FIXED_SIZE

_HOST_BITS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_STORE_TIMESTAMP_SIZE: Final = 8


def _in_place(value: int) -> np.uint32:
    """A word of the log as the machine reads it from there."""
    return np.uint32(int.from_bytes(value.to_bytes(4, "big"), sys.byteorder))


_MAGIC_V1: Final = _in_place(MAGIC_V1)
_MAGIC_V2: Final = _in_place(MAGIC_V2)
_HOST_BITS_IN_PLACE: Final = _in_place(_HOST_BITS)


class _Column(Generic[Item]):
    """A field of the header, converted when first asked for: a cached_property, which would take a
    lock for each."""

    def __init__(self, field: str, kind: type[Item]) -> None:
        self._field = field
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, headers: "HeaderColumns", owner: type) -> NDArray[Item]:
        column: NDArray[Item] = headers.fixed[self._field].astype(self._kind)
        headers.__dict__[self._name] = column
        return column


@dataclass(frozen=True)
class HeaderColumns:
    """n records' headers in host byte order; nothing of the buffer is kept.

    positions, sizes             i8[n] as given (buffer positions, bytes)
    fixed                        the headers, HEADER_DTYPE[n]; hosts are zero if IPv6
    well_formed                  bool[n] size, magic and all inner lengths agree; in a row where
                                 they do not, the columns below say nothing
    body_start, body_length      i8[n] buffer position, bytes; and so on for topic, properties
    born_host_start, store_host_start   i8[n] buffer positions; 8 or 20 bytes by the system flag

    The other columns are converted when first asked for.
    """

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    fixed: NDArray[np.void]
    well_formed: NDArray[np.bool_]
    body_start: NDArray[np.int64]
    body_length: NDArray[np.int64]
    topic_start: NDArray[np.int64]
    topic_length: NDArray[np.int64]
    properties_start: NDArray[np.int64]
    properties_length: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.positions)

    stored_size = _Column("size", np.int32)  # that the record itself says
    magic = _Column("magic", np.uint32)
    body_crc = _Column("body_crc", np.int32)
    queue_id = _Column("queue_id", np.int32)
    flag = _Column("flag", np.int32)
    queue_offset = _Column("queue_offset", np.int64)
    physical_offset = _Column("physical_offset", np.int64)
    sys_flag = _Column("sys_flag", np.int32)
    born_timestamp = _Column("born_timestamp", np.int64)
    store_timestamp = _Column("store_timestamp", np.int64)
    reconsume_times = _Column("reconsume_times", np.int32)
    prepared_transaction_offset = _Column("prepared_transaction_offset", np.int64)

    @property
    def born_host_start(self) -> NDArray[np.int64]:
        return self.positions + BORN_HOST_OFFSET

    @cached_property
    def store_host_start(self) -> NDArray[np.int64]:
        born_ipv6 = (self.sys_flag & BORN_HOST_IPV6) != 0
        offset = BORN_HOST_OFFSET + IPV4_SIZE + _STORE_TIMESTAMP_SIZE
        starts: NDArray[np.int64] = self.positions + (offset + IPV6_EXTRA * born_ipv6)
        return starts

    def head(self, count: int) -> "HeaderColumns":
        """The first `count` records alone."""
        if count >= self.count:
            return self
        return HeaderColumns(
            *(getattr(self, name)[:count] for name in HeaderColumns.__dataclass_fields__)
        )

    def rows(self, chosen: NDArray[np.bool_]) -> "HeaderColumns":
        """The records with True in `chosen`, bool[n]."""
        return HeaderColumns(
            *(getattr(self, name)[chosen] for name in HeaderColumns.__dataclass_fields__)
        )


def gather_headers(
    buffer: Buffer, positions: NDArray[np.int64], sizes: NDArray[np.integer[Any]]
) -> HeaderColumns:
    """Headers of the records at `positions` that are `sizes` bytes long, whatever they hold.

    A record outside the buffer, or too short to be one, is not well_formed; nothing is raised.
    """
    data = byte_array(buffer)
    wide = sizes.astype(np.int64, copy=False)
    ends = positions + wide
    if not len(positions) or (
        int(np.minimum.reduce(positions)) >= 0
        and int(np.minimum.reduce(wide)) >= MIN_RECORD_SIZE
        and int(np.maximum.reduce(ends)) <= len(data)
    ):
        return _gather(data, positions, wide, ends)
    inside = (positions >= 0) & (wide >= MIN_RECORD_SIZE) & (ends <= len(data))
    usable = inside.nonzero()[0]
    part = _gather(data, positions[usable], wide[usable], ends[usable])
    columns: list[NDArray[Any]] = [positions, wide]
    for name in list(HeaderColumns.__dataclass_fields__)[2:]:
        column = getattr(part, name)
        whole = np.zeros(len(positions), column.dtype)
        whole[usable] = column
        columns.append(whole)
    return HeaderColumns(*columns)


def _gather(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> HeaderColumns:
    """gather_headers for records that lie inside the buffer and are long enough."""
    if len(positions) == 0:
        nothing = np.empty(0, np.int64)
        return HeaderColumns(
            positions,
            sizes,
            np.empty(0, HEADER_DTYPE),
            np.empty(0, np.bool_),
            *(nothing for _ in range(6)),
        )
    fixed = windows(data, FIXED_SIZE)[positions].view(HEADER_DTYPE)
    header_sizes, long_enough = _read_ipv6_headers(data, positions, sizes, fixed)
    magic = _native_words(fixed, "magic")
    well_formed = magic == _MAGIC_V1
    version_2 = None
    if not all_true(well_formed):
        version_2 = magic == _MAGIC_V2
        well_formed |= version_2
    well_formed &= fixed["size"].astype(np.int64) == sizes
    if long_enough is not None:
        well_formed &= long_enough

    body_start = positions + header_sizes
    # What is left for the body: all but the two length fields behind it.
    body_length = _within(fixed["body_length"].astype(np.int64), ends - body_start - 3, well_formed)
    topic_start = body_start + body_length
    topic_length = data[topic_start].view(np.int8).astype(np.int64)
    topic_start += 1
    if version_2 is not None and version_2.any():
        _read_long_topic_lengths(data, version_2.nonzero()[0], ends, topic_start, topic_length)
    topic_length = _within(topic_length, ends - topic_start - 2, well_formed)
    properties_start = topic_start + topic_length
    # The properties take what is left, and their length field has to say just that; it is signed,
    # so that no length above 32,767 equals it.
    said = windows(data, 2)[properties_start].view(">i2")
    properties_start += 2
    properties_length = ends - properties_start
    well_formed &= said.astype(np.int64) == properties_length
    return HeaderColumns(
        positions,
        sizes,
        fixed,
        well_formed,
        body_start,
        body_length,
        topic_start,
        topic_length,
        properties_start,
        properties_length,
    )


def _within(
    lengths: NDArray[np.int64], room: NDArray[np.int64], well_formed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The lengths, 0 in the place of those that do not fit their room: they are not well formed."""
    # As unsigned numbers the negative lengths are too large; room is never negative.
    fits = lengths.view(np.uint64) <= room.view(np.uint64)
    if all_true(fits):
        return lengths
    well_formed &= fits
    return lengths * fits


def _native_words(fixed: NDArray[np.void], name: str) -> NDArray[np.uint32]:
    """A field of four bytes as the machine reads it, which is the wrong way round: for comparing
    with what was turned round once, and not for every record."""
    words: NDArray[np.uint32] = fixed[name].view(np.uint32)
    return words


def _read_long_topic_lengths(
    data: NDArray[np.uint8],
    rows: NDArray[np.int64],
    ends: NDArray[np.int64],
    topic_start: NDArray[np.int64],
    topic_length: NDArray[np.int64],
) -> None:
    """V2 rows: the topic's length has two bytes. A row with no room for them gets -1."""
    starts = topic_start[rows]
    room = starts + 3 <= ends[rows]
    topic_length[rows] = -1
    rows, starts = rows[room], starts[room]
    high = data[starts - 1].view(np.int8).astype(np.int64)
    topic_length[rows] = high << 8 | data[starts]
    topic_start[rows] = starts + 1


def _read_ipv6_headers(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    fixed: NDArray[np.void],
) -> tuple[NDArray[np.int64] | int, NDArray[np.bool_] | None]:
    """Bytes of each header, and which records are long enough for theirs, None for all; reads the
    headers with an IPv6 host into `fixed` again, by their own layout."""
    if none_true(_native_words(fixed, "sys_flag") & _HOST_BITS_IN_PLACE):
        return FIXED_SIZE, None
    host_bits = fixed["sys_flag"].astype(np.int32) & _HOST_BITS
    header_sizes = np.full(len(positions), FIXED_SIZE, np.int64)
    long_enough = np.ones(len(positions), np.bool_)
    for bits, rows in _rows_by_layout(host_bits):
        layout = header_dtype(
            IPV6_SIZE if bits & BORN_HOST_IPV6 else IPV4_SIZE,
            IPV6_SIZE if bits & STORE_HOST_IPV6 else IPV4_SIZE,
        )
        extra = layout.itemsize - FIXED_SIZE
        enough = sizes[rows] >= MIN_RECORD_SIZE + extra
        long_enough[rows[~enough]] = False
        rows = rows[enough]
        header_sizes[rows] += extra
        if not len(rows):
            continue
        read = windows(data, layout.itemsize)[positions[rows]].view(layout)
        moved = np.zeros(len(rows), HEADER_DTYPE)
        for name in HEADER_DTYPE.names or ():
            if layout[name] == HEADER_DTYPE[name]:
                moved[name] = read[name]
        fixed[rows] = moved
    return header_sizes, long_enough


def _rows_by_layout(host_bits: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for bits in (BORN_HOST_IPV6, STORE_HOST_IPV6, _HOST_BITS):
        rows = (host_bits == bits).nonzero()[0]
        if len(rows):
            yield bits, rows
