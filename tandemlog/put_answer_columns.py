"""The positions of many records of one request (put_answer.py), and of all of a send_many."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .v1 import broker_pb2

if TYPE_CHECKING:
    from array import array


def record_queue_ids(queue_ids: Sequence[int], queue_indexes: "array[int]") -> NDArray[np.int32]:
    """i4[n]"""
    found: NDArray[np.int32] = np.asarray(queue_ids, np.int32)[np.asarray(queue_indexes)]
    return found


def physical_offsets(
    segments: Iterable[broker_pb2.AppendSegment], sizes: "array[int]"
) -> NDArray[np.int64]:
    """i8[n], bytes; -1 if the node did not say."""
    offsets = np.full(len(sizes), -1, np.int64)
    for segment in segments:
        part = slice(segment.first_index, segment.first_index + segment.count)
        lengths = np.asarray(sizes)[part].astype(np.int64) + segment.record_extra
        offsets[part] = segment.physical_offset + np.cumsum(lengths) - lengths
    return offsets


def queue_offsets(
    segments: Iterable[broker_pb2.AppendSegment], queue_indexes: "array[int]"
) -> NDArray[np.int64]:
    """i8[n], messages; -1 if the node did not say."""
    offsets = np.full(len(queue_indexes), -1, np.int64)
    for segment in segments:
        part = slice(segment.first_index, segment.first_index + segment.count)
        first = np.frombuffer(segment.queue_offsets, "<i8")
        if not len(first):
            continue
        indexes = np.asarray(queue_indexes)[part]
        offsets[part] = first[indexes] + rank_in_group(indexes)
    return offsets


def rank_in_group(groups: NDArray[np.uint16]) -> NDArray[np.int64]:
    """How many equal values stand before each one, i8[n]."""
    count = len(groups)
    if count == 0 or (groups == groups[0]).all():
        return np.arange(count, dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    positions = np.arange(count, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(starts, count))
    ranks = np.empty(count, np.int64)
    ranks[order] = positions - np.repeat(starts, lengths)
    return ranks


def joined(parts: Sequence[Sequence[int] | int], dtype: str) -> Any:
    """One array of the given ones; a number stands for as many times -1."""
    arrays = [
        np.full(part, -1, dtype) if isinstance(part, int) else np.asarray(part, dtype)
        for part in parts
    ]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
