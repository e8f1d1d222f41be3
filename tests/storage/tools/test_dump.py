"""dump shows of RocketMQ's stores what RocketMQ's own code reads from them, and writes nothing."""

from pathlib import Path

import pytest

from helpers import golden
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.dump import dump

pytestmark = pytest.mark.golden


def config(copy: golden.GoldenCopy) -> StoreConfig:
    sizes = copy.sizes
    return StoreConfig(
        directory=copy.store,
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
    )


def fingerprint(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*")
    }


@pytest.mark.parametrize("store", golden.stores(), ids=lambda each: each.label)
def test_dump_shows_what_rocketmq_reads(store: golden.Golden, tmp_path: Path) -> None:
    copy = store.copy(tmp_path)
    before = fingerprint(copy.store)
    messages = dump(config(copy), "messages")
    assert list(messages) == copy.expected("messages")
    assert "stopped at offset" in messages.notes[0]
    if not store.killed:
        queues = list(dump(config(copy), "queues"))
        assert sorted(map(str, queues)) == sorted(map(str, copy.expected("queues")))
    if store.exact_index:
        assert list(dump(config(copy), "index")) == copy.expected("index")
    said = copy.source / "expected" / "checkpoint.json"
    if store.exact_index and said.exists():
        (row,) = dump(config(copy), "checkpoint")
        (expected,) = golden.read_lines(said)
        assert {name: row[name] for name in expected} == expected
    list(dump(config(copy), "epochs"))
    assert fingerprint(copy.store) == before
