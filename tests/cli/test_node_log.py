"""The log of a running node, as a backup takes it: one history, or nothing."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fakes.built_archives import content_of
from fakes.fake_object_store import FakeObjectStore
from fakes.log_builder import LogBuilder
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.backup import backup
from tandemlog.archive.errors import BackupRefusedError
from tandemlog.format.files.log_history import LogHistory, LogTerm
from tandemlog.logs.reading.fetched_state import FetchedState
from tandemlog.logs.reading.log_files import LogFiles
from tandemlog_server.cli.shared import node_log
from tandemlog_server.cli.shared.node_log import NodeLog

FILE = 1 << 14
OLD = LogHistory(7, (LogTerm(1, 0, 11),))


@dataclass(frozen=True)
class FakeNode:
    """A node that sends the bytes of a builder's log; `now` has its state. In `on_read` tests
    change what it has."""

    now: dict[str, Any]
    endpoint: str = "n0:1"
    files: LogFiles = field(default_factory=lambda: LogFiles("n0", None, FILE, ()))
    first: int = 0
    confirmed: int = 0

    def connect(self) -> "FakeNode":
        return self

    def read_into(self, offset: int, target: memoryview) -> int:
        self.now["on_read"](offset)
        content = content_of(self.now["log"], offset, offset + len(target))
        target[:] = content
        return len(content)

    def close(self) -> None:
        """Nothing is open."""


def log_of(body: bytes, count: int) -> LogBuilder:
    builder = LogBuilder(Path(), FILE)
    for _ in range(count):
        builder.put(body=body * 200)
    return builder


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the node has now."""
    log = log_of(b"a", 30)
    state = FetchedState(0, log.end, FILE, OLD, "1s", frozenset(), 5, {"topics": b"{}"})
    now: dict[str, Any] = {"log": log, "state": state, "on_read": lambda offset: None}
    monkeypatch.setattr(node_log, "fetched_log", lambda *_: FakeNode(now))
    monkeypatch.setattr(node_log, "fetched_state", lambda *_: now["state"])
    return now


def test_a_log_that_is_cut_while_it_is_backed_up_is_refused(node: dict[str, Any]) -> None:
    """Else the backup would have the bytes of two masters, and a history that says one."""
    objects = FakeObjectStore()
    cut = node["log"].records[12].physical_offset
    new = LogHistory(7, (*OLD.terms, LogTerm(2, cut, 12)))

    def fail_over(offset: int) -> None:
        if offset >= cut:
            node["log"] = log_of(b"b", 40)
            node["state"] = replace(node["state"], end=node["log"].end, history=new)

    node["on_read"] = fail_over
    words = f"cut at {cut} while .*run it again"
    with NodeLog("n0:1") as log, pytest.raises(BackupRefusedError, match=words):
        backup(objects, log, now_ms=1, segment_bytes=2_000)
    assert not any(key.startswith("manifests/") for key in objects.objects)
    node["on_read"] = lambda offset: None
    with NodeLog("n0:1") as log:
        backup(objects, log, now_ms=1, segment_bytes=2_000)
    reader = ArchiveReader.open(objects)
    end = min(FILE, node["log"].end)
    assert reader.read(0, end) == content_of(node["log"], 0, end)


def test_a_log_that_grows_in_a_new_term_is_backed_up(node: dict[str, Any]) -> None:
    objects = FakeObjectStore()
    end = node["log"].end

    def fail_over(_: int) -> None:
        new = LogHistory(7, (*OLD.terms, LogTerm(2, end, 12)))
        node["state"] = replace(node["state"], end=end + 500, history=new)

    node["on_read"] = fail_over
    with NodeLog("n0:1") as log:
        backup(objects, log, now_ms=1, segment_bytes=2_000)
    manifest = ArchiveReader.open(objects).manifest
    assert (manifest.end, manifest.epoch) == (end, 1)
