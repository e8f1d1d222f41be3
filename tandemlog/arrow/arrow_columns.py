"""Records as Arrow columns, without a Python statement per record.

Values are copied out of the window by columns (text_columns.py). Each value of a field with few
different values (topic, hosts) is created once and repeated.

Text that is not UTF-8 is read as Java reads it: each bad sequence becomes U+FFFD.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.arrays.grouping import distinct_slices
from ..format.columns.headers import HeaderColumns
from ..format.columns.topics import topics_of
from ..format.constants import KEYS, MAGIC_V2, SHARDING_KEY, TAGS, UNIQ_KEY
from ..format.files.queue_unit import DEFAULT_LEVELS, DelayLevels
from ..format.record.host import IPV4_SIZE, IPV6_SIZE, host_text
from ..format.record.message_id import encode_offset_id
from ..format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6
from .plain_arrays import numbers, strings, timestamps
from .property_table import PropertyTable, property_map
from .service_columns import SERVICE_COLUMNS, ServiceColumns
from .text_columns import fixed_text, repeated_text, sliced

_PAIRS = 4
"""Two bytes each, of an IPv4 host with its port as of an offset."""


def message_batch(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    schema: pa.Schema,
    delay_levels: DelayLevels = DEFAULT_LEVELS,
) -> pa.RecordBatch:
    """The records of a window, with the columns of `schema`: names of NAMES and SERVICE_COLUMNS,
    and for times timestamp[ms] or timestamp[us]. `delay_levels` are the store's."""
    records = _Records(data, headers)
    services = ServiceColumns(data, headers, delay_levels)
    arrays = [
        SERVICE_COLUMNS[field.name](services, field.type)
        if field.name in SERVICE_COLUMNS
        else _COLUMNS[field.name](records, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Records:
    """One window's records, and what several columns need of them."""

    def __init__(self, data: NDArray[np.uint8], headers: HeaderColumns) -> None:
        self.data = data
        self.headers = headers

    @cached_property
    def properties(self) -> PropertyTable:
        return PropertyTable(self.data, self.headers)

    def topic(self) -> pa.Array:
        return repeated_text(*topics_of(self.data, self.headers))

    def _host(self, name: str, starts: NDArray[np.int64], ipv6: int) -> pa.Array:
        """`name` is the header's, for IPv4 hosts."""
        is_ipv6 = (self.headers.sys_flag & ipv6) != 0
        if len(starts) and not is_ipv6.any():
            words = self._host_words(name)
            if (words == words[0]).all():  # one store wrote them all
                return repeated_text([host_text(words[:1].tobytes())], np.zeros_like(starts))
        lengths = np.where(is_ipv6, IPV6_SIZE, IPV4_SIZE)
        firsts, which = distinct_slices(self.data, starts, lengths)
        texts = [
            host_text(self.data[start : start + length].tobytes())
            for start, length in zip(starts[firsts].tolist(), lengths[firsts].tolist(), strict=True)
        ]
        return repeated_text(texts, which)

    def born_host(self) -> pa.Array:
        return self._host("born_host", self.headers.born_host_start, BORN_HOST_IPV6)

    def store_host(self) -> pa.Array:
        return self._host("store_host", self.headers.store_host_start, STORE_HOST_IPV6)

    def _host_words(self, name: str) -> NDArray[np.uint64]:
        """The bytes of each IPv4 host, as they are in the record."""
        return np.ascontiguousarray(self.headers.fixed[name]).view(np.uint64)

    def msg_id(self) -> pa.Array:
        """Store host and offset in hexadecimal digits, made of two bytes at a time."""
        headers = self.headers
        if (headers.sys_flag & STORE_HOST_IPV6).any():
            return self._mixed_ids()
        hosts = self._host_words("store_host")
        offsets = headers.physical_offset.astype(">i8")
        digits = _digits_of_pairs()
        rows = np.empty((headers.count, 2 * _PAIRS), np.uint32)
        if (hosts == hosts[:1]).all():
            hosts = hosts[:1]  # one for all rows
        rows[:, :_PAIRS] = digits[hosts.view(np.uint16).reshape(-1, _PAIRS)]
        rows[:, _PAIRS:] = digits[offsets.view(np.uint16).reshape(-1, _PAIRS)]
        return fixed_text(rows.view(np.uint8))

    def _mixed_ids(self) -> pa.Array:
        """Ids of two lengths: a plain loop, since IPv6 stores are rare."""
        hosts = self.store_host().to_pylist()
        offsets = self.headers.physical_offset.tolist()
        ids = [encode_offset_id(host, at) for host, at in zip(hosts, offsets, strict=True)]
        return strings(ids, pa.string())


@cache
def _digits_of_pairs() -> NDArray[np.uint32]:
    """The four hexadecimal digits of every pair of bytes."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    return digits[np.stack((pairs >> 4, pairs & 15), axis=-1)].reshape(-1, 4).view(np.uint32)[:, 0]


def _int(values: NDArray[Any]) -> pa.Array:
    return numbers(values.astype(np.int32, copy=False), pa.int32())


def _long(values: NDArray[Any]) -> pa.Array:
    return numbers(values.astype(np.int64, copy=False), pa.int64())


_COLUMNS: dict[str, Callable[[_Records, pa.DataType], pa.Array]] = {
    "topic": lambda r, _: r.topic(),
    "queue_id": lambda r, _: _int(r.headers.queue_id),
    "queue_offset": lambda r, _: _long(r.headers.queue_offset),
    "physical_offset": lambda r, _: _long(r.headers.physical_offset),
    "size": lambda r, _: _int(r.headers.stored_size),
    "version": lambda r, _: _int(np.where(r.headers.magic == MAGIC_V2, 2, 1)),
    "msg_id": lambda r, _: r.msg_id(),
    "tags": lambda r, _: r.properties.values(TAGS),
    "keys": lambda r, _: r.properties.values(KEYS),
    "uniq_key": lambda r, _: r.properties.values(UNIQ_KEY),
    "sharding_key": lambda r, _: r.properties.values(SHARDING_KEY),
    "properties": lambda r, _: property_map(r.properties),
    "sys_flag": lambda r, _: _int(r.headers.sys_flag),
    "flag": lambda r, _: _int(r.headers.flag),
    "born_timestamp": lambda r, kind: timestamps(r.headers.born_timestamp, kind),
    "born_host": lambda r, _: r.born_host(),
    "store_timestamp": lambda r, kind: timestamps(r.headers.store_timestamp, kind),
    "store_host": lambda r, _: r.store_host(),
    "reconsume_times": lambda r, _: _int(r.headers.reconsume_times),
    "prepared_transaction_offset": lambda r, _: _long(r.headers.prepared_transaction_offset),
    "body_crc": lambda r, _: _int(r.headers.body_crc),
    "body": lambda r, _: sliced(r.data, r.headers.body_start, r.headers.body_length, pa.binary()),
}

NAMES = tuple(_COLUMNS)
"""Of all columns, in the order of the fields of a record."""
