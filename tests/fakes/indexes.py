"""An index over a plain list of records with keys."""

from pathlib import Path
from typing import Any

import numpy as np

from fakes.clock import FakeClock
from tandemlog.format.files.index_layout import (
    HEADER_SIZE,
    IndexHeader,
    decode_index_header,
    key_hash,
)
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.index.index_service import IndexService
from tandemlog_server.storage.recovery.index_loading import IndexFindings, load_index

ROOT = Path("/store")


NOW = 1_700_000_000_000


KEYS = [f"k{number}" for number in range(12)]


class Index:
    """An index over a list of records; record n has keys[n] and is at log offset 10·n."""

    def __init__(self, *, slots: int = 7, entries: int = 12) -> None:
        self.files = MemoryFiles()
        self.sizes: dict[str, Any] = {"slots": slots, "entries": entries}
        self.keys: list[list[str]] = []
        self.clock = FakeClock()
        self.open()

    def open(self) -> None:
        self.service = IndexService(
            ROOT / "index", ROOT / "tandemlog", self.files, self.clock,
            time_of=lambda offset: NOW + offset * 100, **self.sizes,
        )  # fmt: skip

    @property
    def end(self) -> int:
        return 10 * len(self.keys)

    def load(self, *, clean: bool) -> IndexFindings:
        self.open()
        return load_index(self.service, self.files, log_start=0, log_end=self.end, clean=clean)

    def add(self, *keys: str) -> None:
        """One record with these keys."""
        self.keys.append(list(keys))

    def dispatch(self, last: int | None = None) -> None:
        """Records from where the index is."""
        first = self.service.next_offset // 10
        rows = self.keys[first:last]
        owners = [n for n, keys in enumerate(rows, first) for _ in keys]
        hashes = [key_hash("T", key) for keys in rows for key in keys]
        offsets = 10 * np.array(owners, dtype=np.int64)
        self.service.insert(
            np.array(hashes, dtype=np.int32), offsets, NOW + offsets * 100,
            10 * (first + len(rows)),
        )  # fmt: skip

    def found(self, key: str) -> list[int]:
        return list(self.service.query("T", key))

    def expected(self, key: str) -> list[int]:
        rows = self.keys[: self.service.next_offset // 10]
        return [10 * n for n, keys in enumerate(rows) for each in keys if each == key][::-1]

    def check(self) -> None:
        for key in KEYS:
            assert self.found(key) == self.expected(key)

    def names(self) -> list[str]:
        return self.files.listdir(ROOT / "index")


def fill(index: Index, records: int, keys: int = 2) -> None:
    for number in range(len(index.keys), len(index.keys) + records):
        index.add(*[KEYS[(number + each) % len(KEYS)] for each in range(keys)])


def read_header(index: Index, name: str) -> IndexHeader:
    handle = index.files.open(ROOT / "index" / name)
    try:
        return decode_index_header(index.files.pread(handle, HEADER_SIZE, 0))
    finally:
        index.files.close(handle)
