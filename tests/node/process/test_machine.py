"""What a node stands on."""

import logging
from pathlib import Path

import pytest

from tandemlog_server.node.process.machine import Machine
from tandemlog_server.storage.config import StoreConfig


def test_an_empty_folder_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tandemlog_server.node.process.machine")
    config = StoreConfig(
        directory=tmp_path / "mistyped",
        commit_log_file_size=1 << 16,
        queue_file_size=8_000,
        index_slots=100,
        index_entries=400,
    )

    def said() -> list[object]:
        return [each.args for each in caplog.records if each.name.endswith(".process.machine")]

    Machine().open_store(config).close()
    assert said() == [(config.directory,)]
    Machine().open_store(config).close()
    assert len(said()) == 1
