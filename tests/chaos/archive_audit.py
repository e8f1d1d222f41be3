"""The archive of the cluster is compared with the logs of its nodes.

    after a fault   the archive comes up to what was confirmed when all were in sync again, and what
                    is new in it is in the log of every node, byte for byte
    at the end      all of it is, and a folder that is restored from it holds the same bytes

The archive lies on a disk that does not fail, as the logs of nodes that are up do not while they
are compared.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.checks import Finding
from chaos.cluster import HEAL_S
from helpers.log_bytes import log_bytes
from helpers.running import NodeProcess, wait_until
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.folder_store import FolderStore

PIECE_BYTES = 1 << 20
KIND = "archive"


class ArchiveAudit:
    """See the module. `folder`: the archive that all nodes write to."""

    def __init__(self, folder: Path, nodes: Sequence[NodeProcess]) -> None:
        self._objects = FolderStore(folder)
        self._nodes = nodes
        self.compared = 0

    @property
    def end(self) -> int:
        """Of the log in the archive; 0 before there is one."""
        found = newest_manifest(self._objects)
        return 0 if found is None else found[1].end

    def after_fault(self) -> list[Finding]:
        """What differs of that which is new. Raises AssertionError if the archive stands still."""
        self._wait_archived()
        found = self._compare(self.compared)
        self.compared = self.end
        return found

    def at_the_end(self, restored: Path) -> list[Finding]:
        """What differs at all, also in the folder that is restored to `restored`."""
        self._wait_archived()
        end = self.end
        self.compared = end
        command = [sys.executable, "-P", "-m", "tandemlog", "restore", self._objects.url]
        done = subprocess.run(
            [*command, "--dir", str(restored)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return [Finding(KIND, f"restore: {(done.stderr or done.stdout).strip()[-400:]}")]
        stores = [("the restored folder", restored), *self._stores()]
        return self._compare(0, stores)

    # ---- how

    def _stores(self) -> list[tuple[str, Path]]:
        return [(node.node_id, node.store) for node in self._nodes]

    def _wait_archived(self) -> None:
        confirmed = max(
            status.confirm_offset for node in self._nodes if (status := node.status()) is not None
        )
        wait_until(
            f"the archive to hold the log up to {confirmed}", lambda: self.end >= confirmed, HEAL_S
        )

    def _compare(
        self, start: int, stores: Sequence[tuple[str, Path]] | None = None
    ) -> list[Finding]:
        reader, found = ArchiveReader.open(self._objects), []
        begin, end = reader.manifest.begin, reader.manifest.end
        if begin > 0 or len(reader.manifest.spans()) != 1:
            found.append(Finding(KIND, f"it has {reader.manifest.spans()}, not all of the log"))
        for name, store in self._stores() if stores is None else stores:
            for at in range(start, end, PIECE_BYTES):
                until = min(at + PIECE_BYTES, end)
                if (problem := _difference(reader, store, at, until)) is not None:
                    found.append(Finding(KIND, f"{name}: {problem}"))
                    break
        return found


def _difference(reader: ArchiveReader, store: Path, start: int, end: int) -> str | None:
    try:
        log = log_bytes(store, start, end)
    except EOFError as error:
        return f"{error}: what the archive has was taken back"
    archived = reader.read(start, end)
    if log == archived:
        return None
    at = next(i for i, (a, b) in enumerate(zip(log, archived, strict=True)) if a != b)
    return f"other bytes at {start + at} than the archive"
