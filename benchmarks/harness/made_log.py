"""Files of a log for benchmarks of what reads them: 1 KiB bodies with three properties, 64 queues.

Files of 32 MiB, all with the same bodies; each is of ten minutes.
"""

from pathlib import Path

import numpy as np

from tandemlog.format.columns.patch import patch_stored_fields
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import encode_blank, encode_record

FILES = 16
FILE_BYTES = 32 << 20
TOPICS, QUEUES = 16, 4


def make_log(store: Path, files: int = FILES) -> int:
    """Write the log files; returns the bytes of their records."""
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    records, sizes, queues = _one_file()
    positions = np.cumsum(np.concatenate(([0], sizes[:-1]))).astype(np.int64)
    counts = np.zeros(TOPICS * QUEUES, np.int64)
    rank = np.zeros(len(sizes), np.int64)
    for queue in range(TOPICS * QUEUES):
        mine = queues == queue
        counts[queue] = np.count_nonzero(mine)
        rank[mine] = np.arange(counts[queue])
    host = bytes((10, 0, 0, 5)) + (10911).to_bytes(4)
    for number in range(files):
        base = number * FILE_BYTES
        patch_stored_fields(
            records,
            positions,
            queue_offsets=rank + number * counts[queues],
            physical_offsets=positions + base,
            store_timestamp=1_700_000_000_000 + number * 600_000,
            store_host=host,
        )
        with (folder / f"{base:020d}").open("wb") as file:
            file.write(records.data)
            file.write(encode_blank(FILE_BYTES - len(records)))
            file.truncate(FILE_BYTES)
    return len(records) * files


def _one_file() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records that nearly fill a file, their sizes and queues."""
    random = np.random.default_rng(1)
    pool = random.bytes(1 << 20)
    records = bytearray()
    sizes: list[int] = []
    queues: list[int] = []
    while True:
        number, start = len(sizes), int(random.integers(1 << 19))
        queue = int(random.integers(TOPICS * QUEUES))
        properties = encode_properties(
            {"UNIQ_KEY": f"7F000001{number:024X}", "KEYS": f"order-{number}",
             "TAGS": f"tag-{number % 10}"}
        )  # fmt: skip
        record = encode_record(
            topic=f"topic-{queue // QUEUES:02d}",
            body=pool[start : start + 1024],
            properties=properties,
            queue_id=queue % QUEUES,
            born_timestamp=1_700_000_000_000 + number // 50,
            born_host=f"10.0.1.{number % 20}:40000",
        )
        if len(records) + len(record) + 8 > FILE_BYTES:
            break
        records += record
        sizes.append(len(record))
        queues.append(queue)
    return np.frombuffer(records, np.uint8), np.array(sizes), np.array(queues)
