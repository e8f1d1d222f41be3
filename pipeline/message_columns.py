"""Records as Arrow columns, without a Python statement per record.

    window   |..header..|.....body.....|topic|..properties..|..header..|...
    offsets              s0           e0                               s1 ...
                         '- value 0 --'--------- gap --------'- value 1 -...

A variable column is an Arrow array over the whole window in which values and gaps alternate; taking
every second element copies the values in one go. Fields with few different values (topic, hosts)
are made once each and repeated.

Text that is not UTF-8 is read as Java reads it: each bad sequence becomes U+FFFD.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandemlog.format.columns import HeaderColumns
from tandemlog.format.constants import KEYS, MAGIC_V2, TAGS, UNIQ_KEY
from tandemlog.format.grouping import distinct_slices
from tandemlog.format.host import IPV4_SIZE, IPV6_SIZE, host_text
from tandemlog.format.message_id import encode_offset_id
from tandemlog.format.property_segments import PropertySegments
from tandemlog.format.ragged import gather_rows
from tandemlog.format.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from .dispatch import topics_of
from .property_map import property_map
from .schema import TIMESTAMP, Columns, arrow_schema
from .text_columns import fixed_text, repeated_text, sliced

_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
_OFFSET_BYTES = 8


def message_batch(
    data: NDArray[np.uint8], headers: HeaderColumns, columns: Columns
) -> pa.RecordBatch:
    """The records of a window, the given columns of schema.MESSAGES in that order."""
    records = _Records(data, headers)
    arrays = [_COLUMNS[name](records) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


class _Records:
    """One window's records, and what several columns need of them."""

    def __init__(self, data: NDArray[np.uint8], headers: HeaderColumns) -> None:
        self.data = data
        self.headers = headers

    @cached_property
    def segments(self) -> PropertySegments:
        headers = self.headers
        return PropertySegments(self.data, headers.properties_start, headers.properties_length)

    def property(self, name: str) -> pa.Array:
        starts, lengths = self.segments.values(name.encode())
        return sliced(self.segments.flat, starts, lengths, pa.string(), lengths > 0)

    def topic(self) -> pa.Array:
        return repeated_text(*topics_of(self.data, self.headers))

    def host(self, starts: NDArray[np.int64], ipv6: int) -> pa.Array:
        is_ipv6 = (self.headers.sys_flag & ipv6) != 0
        if len(starts) and not is_ipv6.any():
            raw = gather_rows(self.data, starts, IPV4_SIZE)
            words = raw.view(np.uint64)[:, 0]
            if (words == words[0]).all():  # one store wrote them all
                return pa.repeat(pa.scalar(host_text(raw[0].tobytes())), len(words))
        lengths = np.where(is_ipv6, IPV6_SIZE, IPV4_SIZE)
        firsts, numbers = distinct_slices(self.data, starts, lengths)
        texts = [
            host_text(self.data[start : start + length].tobytes())
            for start, length in zip(starts[firsts].tolist(), lengths[firsts].tolist(), strict=True)
        ]
        return repeated_text(texts, numbers)

    def msg_id(self) -> pa.Array:
        headers = self.headers
        if (headers.sys_flag & STORE_HOST_IPV6).any():
            return self._mixed_ids()
        raw = np.empty((headers.count, IPV4_SIZE + _OFFSET_BYTES), np.uint8)
        raw[:, :IPV4_SIZE] = gather_rows(self.data, headers.store_host_start, IPV4_SIZE)
        offsets = headers.physical_offset.astype(">i8")
        raw[:, IPV4_SIZE:] = offsets.view(np.uint8).reshape(-1, _OFFSET_BYTES)
        return fixed_text(_HEX[raw].view(np.uint8))

    def _mixed_ids(self) -> pa.Array:
        """Ids of two lengths: a plain loop, since IPv6 stores are rare."""
        hosts = self.host(self.headers.store_host_start, STORE_HOST_IPV6).to_pylist()
        offsets = self.headers.physical_offset.tolist()
        ids = [encode_offset_id(host, at) for host, at in zip(hosts, offsets, strict=True)]
        return pa.array(ids, pa.string())

    def timestamp(self, milliseconds: NDArray[np.int64]) -> pa.Array:
        return _numbers(milliseconds * 1000, TIMESTAMP)


def _numbers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _int(values: NDArray[Any]) -> pa.Array:
    return _numbers(values.astype(np.int32, copy=False), pa.int32())


def _long(values: NDArray[Any]) -> pa.Array:
    return _numbers(values.astype(np.int64, copy=False), pa.int64())


_COLUMNS: dict[str, Callable[[_Records], pa.Array]] = {
    "topic": _Records.topic,
    "queue_id": lambda r: _int(r.headers.queue_id),
    "queue_offset": lambda r: _long(r.headers.queue_offset),
    "physical_offset": lambda r: _long(r.headers.physical_offset),
    "size": lambda r: _int(r.headers.stored_size),
    "version": lambda r: _int(np.where(r.headers.magic == MAGIC_V2, 2, 1)),
    "msg_id": _Records.msg_id,
    "tags": lambda r: r.property(TAGS),
    "keys": lambda r: r.property(KEYS),
    "uniq_key": lambda r: r.property(UNIQ_KEY),
    "properties": lambda r: property_map(r.segments),
    "sys_flag": lambda r: _int(r.headers.sys_flag),
    "flag": lambda r: _int(r.headers.flag),
    "born_timestamp": lambda r: r.timestamp(r.headers.born_timestamp),
    "born_host": lambda r: r.host(r.headers.born_host_start, BORN_HOST_IPV6),
    "store_timestamp": lambda r: r.timestamp(r.headers.store_timestamp),
    "store_host": lambda r: r.host(r.headers.store_host_start, STORE_HOST_IPV6),
    "reconsume_times": lambda r: _int(r.headers.reconsume_times),
    "prepared_transaction_offset": lambda r: _long(r.headers.prepared_transaction_offset),
    "body_crc": lambda r: _int(r.headers.body_crc),
    "body": lambda r: sliced(
        r.data, r.headers.body_start, r.headers.body_length, pa.binary(), None
    ),
}
