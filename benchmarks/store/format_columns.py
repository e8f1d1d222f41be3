"""Microseconds per record of each step between bytes and columns.

    python -m benchmarks.store.format_columns [RECORDS ...]

Records of 296 bytes: 128 of body, UNIQ_KEY, KEYS, TAGS; batches of 1,000 and 16,000 over 256
and 4,096 queues, and once with bodies of many lengths. The best of many rounds, on one core.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.columns.crcs import body_crcs
from tandemlog.format.columns.dispatch import dispatch_columns, group_by_queue, unit_columns
from tandemlog.format.columns.encode import encode_columns
from tandemlog.format.columns.faults import find_fault, walk_strict
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.columns.patch import patch_stored_fields
from tandemlog.format.columns.walk import walk
from tandemlog.format.record.batch import RecordBatch

BODY_LENGTH = 128
QUEUES_PER_TOPIC = 4
STORE_HOST = bytes((10, 0, 0, 5, 0, 0, 0x2A, 0x9F))
SECONDS_PER_STEP = 0.3


def messages(count: int, queues: int, varied: bool) -> Callable[[], RecordBatch]:
    """A function that encodes `count` messages from prepared columns."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(32, 224, count) if varied else np.full(count, BODY_LENGTH)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    bodies = ByteColumn(rng.integers(0, 256, int(offsets[-1]), np.uint8), offsets)
    uniq_keys = ByteColumn.of([f"{number:032X}" for number in range(count)])
    keys = ByteColumn.of([f"order-{number:06d}" for number in range(count)])
    tags = ByteColumn.of([f"Tag{number % 10}" for number in range(count)])
    topics = [f"topic{number:04d}" for number in range(queues // QUEUES_PER_TOPIC)]
    table = np.arange(queues, dtype=np.uint32)
    queue_indexes = rng.integers(0, queues, count).astype(np.uint16)

    def encode() -> RecordBatch:
        return encode_columns(
            bodies=bodies,
            topics=topics,
            queue_topics=table // QUEUES_PER_TOPIC,
            queue_ids=table % QUEUES_PER_TOPIC,
            queue_indexes=queue_indexes,
            uniq_keys=uniq_keys,
            keys=keys,
            tags=tags,
            born_timestamp=1_700_000_000_000,
        )

    return encode


def measure(name: str, count: int, step: Callable[[], object]) -> float:
    """Prints and returns the microseconds per record of the fastest round."""
    step()
    best = float("inf")
    until = time.perf_counter() + SECONDS_PER_STEP
    while time.perf_counter() < until:
        before = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - before)
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    microseconds = best / count * 1e6
    print(f"  {name:<44}{microseconds:7.3f} us{peak / count:9.0f} bytes at most")
    return microseconds


def report(count: int, queues: int, varied: bool) -> None:
    encode = messages(count, queues, varied)
    batch = encode()
    data = np.frombuffer(bytearray(batch.records), np.uint8)
    sizes = batch.sizes.astype(np.int64)
    positions = np.cumsum(sizes) - sizes
    print(
        f"{count:,} records of {len(data) / count:.0f} bytes, {queues} queues"
        + (", bodies of 32 to 223 bytes" if varied else "")
    )
    queue_offsets = np.arange(count)

    def patch() -> None:
        patch_stored_fields(
            data,
            positions,
            queue_offsets=queue_offsets,
            physical_offsets=positions,
            store_timestamp=1_700_000_000_123,
            store_host=STORE_HOST,
        )

    patch()
    headers = gather_headers(data, positions, sizes)
    measure("encode_columns", count, encode)
    put = (
        measure("gather_headers", count, lambda: gather_headers(data, positions, sizes))
        + measure("find_fault without CRC", count, lambda: find_fault(data, headers))
        + measure(
            "body_crcs", count, lambda: body_crcs(data, headers.body_start, headers.body_length)
        )
        + measure("patch_stored_fields", count, patch)
    )
    print(f"  {'put: the four above':<44}{put:7.3f} us   goal 0.55")
    measure("walk", count, lambda: walk(data))
    measure("walk_strict with CRC", count, lambda: walk_strict(data, base_offset=0))
    columns = dispatch_columns(data, positions, sizes, 0)
    measure(
        "dispatch_columns, headers given",
        count,
        lambda: dispatch_columns(data, positions, sizes, 0, headers=headers),
    )
    measure("group_by_queue", count, lambda: group_by_queue(unit_columns(columns)))

    def reput() -> None:
        walked = walk(data)
        group_by_queue(unit_columns(dispatch_columns(data, walked.positions, walked.sizes, 0)))

    whole = measure("walk, dispatch_columns, group_by_queue", count, reput)
    print(f"  {'reput: the line above':<44}{whole:7.3f} us   goal 1.0\n")


def main() -> None:
    for count in [int(each) for each in sys.argv[1:]] or [1_000, 16_000]:
        for queues in (256, 4_096):
            report(count, queues, varied=False)
        report(count, 256, varied=True)


if __name__ == "__main__":
    main()
