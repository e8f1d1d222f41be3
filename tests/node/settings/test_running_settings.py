"""Settings of a running node: where each came from, and what a change does."""

import tomllib
from pathlib import Path

import pytest

from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.running_settings import HIDDEN, RunningSettings, SettingRow

FILE = """\
# the first of our nodes
cluster_id = "shop"   # all of them

[store]
directory = "/var/lib/tandemlog"

[coordinator]
endpoints = ["10.0.0.1:2379"]
user = "u"
password = "very secret"
"""


class Running:
    def __init__(self, path: Path | None) -> None:
        self.applied: list[NodeConfig] = []
        self.path = path
        self.settings = RunningSettings(load_config(path), path, self.applied.append)

    def row(self, key: str) -> SettingRow:
        return next(each for each in self.settings.rows() if each.key == key)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    path = tmp_path / "n1.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    return Running(path)


def test_each_value_has_its_source(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEMLOG_STORE__FLUSH", "sync")
    again = Running(running.path)
    assert again.row("cluster_id").source == str(running.path)
    assert again.row("store.flush").source == "TANDEMLOG_STORE__FLUSH"
    assert again.row("store.flush").value == '"sync"'
    assert again.row("put.timeout_ms").source == "default"
    assert again.row("put.timeout_ms").value == again.row("put.timeout_ms").default


def test_no_secret_is_shown(running: Running) -> None:
    assert running.row("coordinator.password").value == HIDDEN
    assert all("very secret" not in repr(each) for each in running.settings.rows())
    row, before = running.settings.change("coordinator.password", "another secret")
    assert (row.value, before) == (HIDDEN, HIDDEN)


def test_a_live_setting_counts_at_once_and_after_a_restart(running: Running) -> None:
    row, before = running.settings.change("store.retention.reserved_hours", "24")
    assert (before, row.value, row.next_value, row.live) == ("72", "24", "", True)
    (applied,) = running.applied
    assert applied.store.retention.reserved_hours == 24
    assert applied.store.directory == Path("/var/lib/tandemlog")
    assert load_config(running.path).store.retention.reserved_hours == 24


def test_other_settings_count_after_a_restart(running: Running) -> None:
    row, _ = running.settings.change("put.timeout_ms", "7000")
    assert (row.value, row.next_value, row.live) == (row.default, "7000", False)
    assert running.applied == []
    assert running.row("put.timeout_ms").next_value == "7000"
    assert Running(running.path).row("put.timeout_ms").value == "7000"


def test_a_live_change_does_not_apply_what_waits_for_a_restart(running: Running) -> None:
    running.settings.change("put.timeout_ms", "7000")
    running.settings.change("log.level", "debug")
    (applied,) = running.applied
    assert applied.log.level == "debug"
    assert applied.put.timeout_ms == NodeConfig().put.timeout_ms


def test_a_live_change_that_fits_only_the_edited_file_is_refused(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {})  # tests run with other percentages
    path = running.path
    assert path is not None
    running = Running(path)
    edited = FILE.replace("[coordinator]", "retention.disk_warning_percent = 98\n\n[coordinator]")
    path.write_text(edited)
    key = "store.retention.disk_clean_forcibly_percent"
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=rf"{key} does not fit .*must rise.* restart"):
            running.settings.change(key, "95", dry_run=dry_run)
    assert path.read_text() == edited
    assert running.applied == []
    assert running.row(key).value == "85"


def test_comments_order_and_mode_of_the_file_stay(running: Running) -> None:
    assert running.path is not None
    running.settings.change("cluster_id", "mall", dry_run=True)
    assert running.path.read_text() == FILE
    running.settings.change("log.level", "warning")
    text = running.path.read_text()
    assert text.startswith(FILE)
    assert tomllib.loads(text)["log"] == {"level": "warning"}
    assert running.path.stat().st_mode & 0o777 == 0o640
    running.settings.change("log.level", "", unset=True)
    assert "level" not in running.path.read_text()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("store.flush", "sometimes", "store.flush"),
        ("replication.min_in_sync", "2", "min_in_sync above 1 needs"),
        ("store.flsh", "sync", "there is no setting 'store.flsh'"),
        ("store", "{}", "there is no setting 'store'"),
        ("role", "slave", "with coordinator.endpoints the cluster elects"),
    ],
)
def test_what_would_keep_the_node_from_starting_is_refused(
    running: Running, key: str, value: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        running.settings.change(key, value)
    assert running.path is not None
    assert running.path.read_text() == FILE
    assert running.applied == []


def test_what_the_environment_gives_is_changed_there(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEMLOG_LOG__LEVEL", "debug")
    with pytest.raises(ConfigError, match=r"given by TANDEMLOG_LOG__LEVEL .* change it there"):
        running.settings.change("log.level", "info")


def test_a_node_without_a_file_says_so() -> None:
    with pytest.raises(ConfigError, match="start it with --config FILE"):
        Running(None).settings.change("log.level", "debug")


def test_a_file_that_cannot_be_written_changes_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("tandemlog_server.node.settings.running_settings.replace_text", refuse)
    with pytest.raises(ConfigError, match="cannot be written: Permission denied"):
        running.settings.change("log.level", "debug")
    assert running.applied == []


def test_a_file_that_was_broken_by_hand_is_named(running: Running) -> None:
    assert running.path is not None
    running.path.write_text("cluster_id = ")
    with pytest.raises(ConfigError, match="is not TOML"):
        running.settings.rows()
