"""The plan of a local cluster: made once, gone on with, and never bent."""

import tomllib
from pathlib import Path

import pytest

from tandemlog_server.cli.local.local_cluster import (
    DEFAULT_LOG_FILE_SIZE,
    LocalCluster,
    Wishes,
    ending,
    plan_cluster,
)
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.storage.errors import StoreLayoutError


def test_a_new_cluster_has_the_defaults(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path, Wishes())
    assert (plan.slaves, plan.store, plan.replication, plan.min_in_sync) == (2, "", "sync", 2)
    assert plan.sizes.commit_log_file_size == DEFAULT_LOG_FILE_SIZE


def test_puts_need_a_slave_only_if_another_one_may_die(tmp_path: Path) -> None:
    for name, wishes, wanted in (
        ("one", Wishes(slaves=1), 1),
        ("two", Wishes(slaves=2), 2),
        ("async", Wishes(slaves=2, replication="async"), 1),
        ("given", Wishes(slaves=2, min_in_sync=1), 1),
    ):
        assert plan_cluster(tmp_path / name, wishes).min_in_sync == wanted


def test_the_next_up_goes_on_with_the_cluster(tmp_path: Path) -> None:
    first = plan_cluster(tmp_path, Wishes(slaves=1, queue_file_size=8000, flush="sync"))
    LocalCluster(tmp_path, first, 20_000).write()
    assert plan_cluster(tmp_path, Wishes()) == first
    grown = plan_cluster(tmp_path, Wishes(slaves=3))
    assert (grown.slaves, grown.cluster_id, grown.sizes) == (3, first.cluster_id, first.sizes)


def test_sizes_and_the_store_cannot_change(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path, Wishes(index_slots=100))
    LocalCluster(tmp_path, plan, 20_000).write()
    with pytest.raises(ConfigError, match="has index_slots 100, which cannot be changed to 200"):
        plan_cluster(tmp_path, Wishes(index_slots=200))
    with pytest.raises(ConfigError, match="belongs to the store"):
        plan_cluster(tmp_path, Wishes(store=tmp_path))


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        plan_cluster(tmp_path, Wishes(store=tmp_path / "none"))


def test_slaves_get_the_sizes_of_the_masters_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020}").write_bytes(bytes(65_536))
    (store / "consumequeue" / "t" / "0").mkdir(parents=True)
    (store / "consumequeue" / "t" / "0" / f"{0:020}").write_bytes(bytes(8_000))
    plan = plan_cluster(tmp_path, Wishes(store=store))
    assert (plan.sizes.commit_log_file_size, plan.sizes.queue_file_size) == (65_536, 8_000)


def test_an_index_of_other_sizes_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "index").mkdir(parents=True)
    (store / "index" / "20260101000000000").write_bytes(bytes(42_040))
    with pytest.raises(StoreLayoutError, match="index_slots"):
        plan_cluster(tmp_path, Wishes(store=store))
    plan = plan_cluster(tmp_path, Wishes(store=store, index_slots=500, index_entries=2000))
    assert plan.sizes.index_slots == 500


def test_min_in_sync_needs_the_slaves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_in_sync 3 needs 2 slaves, not 1"):
        plan_cluster(tmp_path, Wishes(slaves=1, min_in_sync=3))
    with pytest.raises(ConfigError, match="min_in_sync 2 needs 1 slave, not 0"):
        plan_cluster(tmp_path, Wishes(slaves=0, min_in_sync=2))


def test_a_plan_that_is_not_readable_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cannot read .*cluster\.json"):
        plan_cluster(tmp_path, Wishes())


@pytest.mark.parametrize("coordinator", ["none", "embedded"])
def test_every_node_gets_a_configuration_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coordinator: str
) -> None:
    monkeypatch.setattr("os.environ", {})
    home = tmp_path / 'a "quoted" übung'
    store = tmp_path / "elsewhere"
    store.mkdir()
    wishes = Wishes(slaves=2, store=store, coordinator=coordinator)
    cluster = LocalCluster(home, plan_cluster(home, wishes), 20_000)
    cluster.write()
    configs = [load_config(node.config) for node in cluster.nodes]
    assert [config.node_id for config in configs] == ["n0", "n1", "n2"]
    if coordinator == "none":
        assert [config.role for config in configs] == ["master", "slave", "slave"]
        assert configs[2].master == configs[0].listen
        assert tomllib.loads(cluster.nodes[0].config.read_text())["master"] == ""
    else:
        assert {config.coordinator.endpoints for config in configs} == {("127.0.0.1:20050",)}
        assert {config.coordinator.members for config in configs} == {("n0", "n1", "n2")}
    assert {config.cluster_id for config in configs} == {cluster.plan.cluster_id}
    assert configs[0].store.directory == store
    assert configs[1].store.directory == home / "n1" / "store"
    assert configs[0].listen == "127.0.0.1:20000"
    assert configs[2].http_listen == "127.0.0.1:20102"
    assert cluster.endpoints == "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"


def test_endings_in_words() -> None:
    assert ending(-9) == "was killed by signal 9"
    assert ending(7) == "ended with exit code 7"


def test_other_users_cannot_read_the_log_of_a_secure_cluster(tmp_path: Path) -> None:
    LocalCluster(tmp_path, plan_cluster(tmp_path, Wishes(slaves=1, secure=True)), 20_000).write()
    for name in ("n0", "n1", "secure"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
