"""Compares the newest file of a foreign index with the log, and finds out whether it has tags.

RocketMQ writes the index through a map and fsyncs a file when it is full, so after a crash its
newest file may hold anything. The log says which entries belong there, in which order:

    log     r0: u0 k0 t0 | r1: u1 t1 | r2: u2 k2 t2 | ...     hash, offset and time of every entry
    file    [k0 t0 u1 t1 u2 ?? ...]
             ^ may begin inside the first record, whose other entries are in the file before

Entries are kept up to the first that differs; an incomplete record keeps none. RocketMQ up to 5.3
has no tag entries: the newest records with a tag tell whether this index has.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.index_chains import time_diffs

from ..dispatch.dispatch_source import DispatchSource
from ..index.index_file import IndexFile
from ..index.index_service import IndexService

SAMPLE_ENTRIES = 1 << 12


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """`kept` entries of the newest file agree with the log, `cut` did not and were removed;
    `chains` entries and slots pointed to wrong entries and were corrected."""

    kept: int
    cut: int
    chains: int


def has_tag_entries(index: IndexService, source: DispatchSource, log_end: int) -> bool | None:
    """Whether the newest entries, whose records the log must have, include one for a tag; None if
    no record tells."""
    for file in reversed(index.files):
        header = file.header
        if header.next_entry <= 1:
            continue
        stored = file.read(max(1, header.next_entry - SAMPLE_ENTRIES), header.next_entry)
        physical = stored["physical_offset"].astype(np.int64)
        start, last = int(physical.min()), int(physical.max())
        tagged = _tags_in(
            stored, physical, source, max(start, source.log.min_offset), last, log_end
        )
        if tagged is not None:
            return tagged
    return None


def check_newest(index: IndexService, source: DispatchSource, log_end: int) -> IndexCheck:
    """Compare the newest file with the log, cut what differs, and correct chains and `next_offset`.
    `source` makes tag entries if the index has them."""
    file = index.newest
    if file is None or file.header.next_entry <= 1:
        return IndexCheck(0, 0, 0)
    total = file.header.next_entry - 1
    agreeing, complete = _agreeing(file, source, log_end)
    if agreeing == 0:
        index.remake_newest(source.log.min_offset)
        return IndexCheck(0, total, 0)
    last = int(file.read(agreeing, agreeing + 1)["physical_offset"][0])
    if agreeing < total:
        index.cut_newest(agreeing + 1)
    chains = file.rebuild_chains()
    # where the next record begins: dispatch may have to start there
    index.next_offset = last + int(source.batch(last, log_end, index=False).columns.size[0])
    if not complete:
        index.truncate(last)
    newest = index.newest
    agreeing = newest.header.next_entry - 1 if newest is file else 0
    return IndexCheck(agreeing, total - agreeing, chains)


def _agreeing(file: IndexFile, source: DispatchSource, log_end: int) -> tuple[int, bool]:
    """How many entries from the first on agree with the log, and whether they end with a whole
    record."""
    total = file.header.next_entry - 1
    first = int(file.read(1, 2)["physical_offset"][0])
    if not source.log.min_offset <= first < log_end:
        return 0, True
    matched, position, complete = 0, first, True
    while matched < total and position < log_end:
        batch = source.batch(position, log_end, index=True)
        if batch.end == position:
            break
        hashes = batch.columns.key_hash
        physical = batch.columns.physical_offset[batch.columns.entry_record]
        times = batch.columns.store_timestamp[batch.columns.entry_record]
        seconds = time_diffs(file.header.begin_timestamp, times)
        if position == first:
            skip = _in_the_file_before(file, physical, first)
            hashes, physical, seconds = hashes[skip:], physical[skip:], seconds[skip:]
        count = min(len(hashes), total - matched)
        stored = file.read(matched + 1, matched + 1 + count)
        in_time = stored["time_diff"] == seconds[:count]
        if not matched:
            in_time[:1] = True  # the first one's time counts from the file before
        same = (
            (stored["key_hash"] == hashes[:count])
            & (stored["physical_offset"] == physical[:count])
            & in_time
        )
        agreeing = count if same.all() else int(np.argmin(same))
        matched += agreeing
        if agreeing < len(hashes):
            complete = agreeing == 0 or int(physical[agreeing]) != int(physical[agreeing - 1])
            break
        position = batch.end
    return matched, complete


def _in_the_file_before(file: IndexFile, physical: NDArray[np.int64], first: int) -> int:
    """How many of the first record's entries are not in this file."""
    wanted = int(np.count_nonzero(physical == first))
    there = file.read(1, min(1 + wanted, file.header.next_entry))["physical_offset"]
    return wanted - int(np.count_nonzero(there == first))


def _tags_in(
    stored: NDArray[np.void],
    physical: NDArray[np.int64],
    source: DispatchSource,
    start: int,
    last: int,
    log_end: int,
) -> bool | None:
    """Whether entries of tags are in `stored`, which covers the records start .. last."""
    pairs = set(zip(physical.tolist(), stored["key_hash"].tolist(), strict=True))
    tagged: bool | None = None
    while start <= last and start < log_end:
        batch = source.batch(start, log_end, index=True, index_tags=True)
        columns = batch.columns
        plain = source.batch(start, log_end, index=True, index_tags=False).columns
        with_tags = np.bincount(columns.entry_record, minlength=columns.count)
        without = np.bincount(plain.entry_record, minlength=plain.count)
        for record in np.flatnonzero(with_tags > without).tolist():
            offset = int(columns.physical_offset[record])
            if offset == int(physical[0]) or offset > last:
                continue  # of the first one only a part may be in the sample
            # the tag's entry is the record's last one
            rows = np.flatnonzero(columns.entry_record == record)
            tagged = (offset, int(columns.key_hash[rows[-1]])) in pairs
        if batch.end == start:
            break
        start = batch.end
    return tagged
