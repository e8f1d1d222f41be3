"""Three stores with the same log in one process, of which the first is scrubbed against the others.

n0 ── Scrubber ──▶ n1, n2: answers and bytes without a network
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fakes.clock import FakeClock
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.scrub.block_answers import (
    BlockAnswer,
    BlockQuestion,
    answer,
    read_piece,
)
from tandemlog_server.storage.scrub.scrubber import Peer, PeerError, Scrubber

DAY = 86_400_000


def files_of(contents: Mapping[Path, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    for path, data in contents.items():
        files.make_directory(path.parent)
        handle = files.open(path, create=True)
        files.pwrite(handle, data, 0)
        files.fdatasync(handle)
        files.close(handle)
        files.fsync_directory(path.parent)
    return files


def turn(files: MemoryFiles, path: Path, at: int, mask: int, count: int = 1) -> None:
    """Turn bytes on the disk and in the page cache, under an open store."""
    handle = files.open(path)
    old = files.pread(handle, count, at)
    files.pwrite(handle, bytes(byte ^ mask for byte in old), at)
    files.fdatasync(handle)
    files.close(handle)


class StorePeer:
    """Another node, asked directly. `up` says whether it answers."""

    def __init__(self, name: str, store: MessageStore) -> None:
        self._name = name
        self.store = store
        self.up = True
        self.asked = 0

    @property
    def name(self) -> str:
        return self._name

    def ask(self, question: BlockQuestion) -> BlockAnswer:
        self.asked += 1
        if not self.up:
            raise PeerError(f"{self._name} does not answer")
        return answer(self.store, question)

    def fetch(self, start: int, end: int) -> bytes:
        if not self.up:
            raise PeerError(f"{self._name} does not answer")
        data = b""
        while start + len(data) < end:
            try:
                data += read_piece(self.store, start + len(data), end)
            except StoreError as error:
                raise PeerError(str(error)) from error
        return data


class Trio:
    """See the module; `count` nodes with these files."""

    def __init__(
        self, config: StoreConfig, contents: Mapping[Path, bytes], *, count: int = 3
    ) -> None:
        self.clock = FakeClock()
        self.files = [files_of(contents) for _ in range(count)]
        self.stores = [
            MessageStore.open(config, files=each, clock=self.clock) for each in self.files
        ]
        self.peers = [
            StorePeer(f"n{number}", store) for number, store in enumerate(self.stores) if number
        ]
        for store in self.stores:
            store.flush()
            store.reput.run_to()
        self.scrubber = self.new_scrubber()

    @property
    def store(self) -> MessageStore:
        return self.stores[0]

    def new_scrubber(self) -> Scrubber:
        return Scrubber(
            self.store,
            self._others,
            self.store.directory / "tandemlog" / "scrub.json",
            bytes_per_s=8 << 20,
            interval_ms=DAY,
        )

    def _others(self) -> Sequence[Peer]:
        return self.peers

    def round(self) -> None:
        """One round of the scrub, to its end; and what it has brought back is dispatched."""
        rounds = self.scrubber.plan.progress.rounds
        self.scrubber.begin_round()
        for _ in range(10_000):
            self.scrubber.step()
            self.store.reput.run_to()
            if self.scrubber.plan.progress.rounds > rounds:
                return
        raise AssertionError("the round comes to no end")

    def close(self) -> None:
        for store in self.stores:
            store._lock_file.release()
