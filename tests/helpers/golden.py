"""Stores written by real RocketMQ brokers, and what RocketMQ itself reads from them.

Two places: the archives in tests/data, always there, and the folder `shared/golden` beside the
checkout, where it exists. Each store is copied before anything opens it.

    store/ (or node0/, node1/)   the files as the broker left them
    expected/*.jsonl             records, queue units and index entries, decoded by RocketMQ
    client.jsonl                 what RocketMQ's client saw of the running broker
    store.json                   the sizes that the files cannot tell
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "golden"


@dataclass(frozen=True, slots=True)
class Golden:
    """One store: `label` names it, `node` is its folder inside the source."""

    label: str
    source: Path
    node: str

    @property
    def killed(self) -> bool:
        return "killed" in self.label

    @property
    def exact_index(self) -> bool:
        """A crash makes RocketMQ index some records twice: then only the set can be compared."""
        return not self.killed and "pair" not in self.label

    @property
    def indexes_tags(self) -> bool:
        """RocketMQ puts tags into the index since 5.4."""
        version = self.label.split("-")[1].split(".")
        return (int(version[0]), int(version[1])) >= (5, 4)

    def copy(self, target: Path) -> "GoldenCopy":
        """A writable copy below `target`."""
        if self.source.is_file():
            with tarfile.open(self.source) as tar:
                tar.extractall(target, filter="data")
            return GoldenCopy(target / self.node, target)
        shutil.copytree(self.source / self.node, target / self.node)
        for path in (target / self.node).rglob("*"):
            path.chmod(path.stat().st_mode | 0o600 | (0o100 if path.is_dir() else 0))
        (target / self.node).chmod(0o755)
        return GoldenCopy(target / self.node, self.source)


@dataclass(frozen=True, slots=True)
class GoldenCopy:
    """`store` may be changed; `source` holds what to expect."""

    store: Path
    source: Path

    @property
    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = json.loads((self.source / "store.json").read_text())
        return sizes

    def expected(self, what: str) -> list[dict[str, Any]]:
        return list(read_lines(self.source / "expected" / f"{what}.jsonl"))

    def client(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in read_lines(self.source / "client.jsonl") if row["kind"] == kind]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def stores() -> list[Golden]:
    """Every store that is there, the small ones first."""
    found = [
        Golden(path.name.removesuffix(".tar.xz"), path, "store")
        for path in sorted(DATA.glob("*.tar.xz"))
    ]
    if SHARED.is_dir():
        for folder in sorted(each for each in SHARED.iterdir() if each.is_dir()):
            found += [
                Golden(folder.name + ("" if node == "store" else f"-{node}"), folder, node)
                for node in ("store", "node0", "node1")
                if (folder / node).is_dir()
            ]
    return found
