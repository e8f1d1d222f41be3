"""Settings: file under environment, every fault named with its key, packages' own rules."""

from dataclasses import fields
from pathlib import Path

import pytest

from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.node.settings.config import ConfigError, NodeConfig, load_config
from tandemlog_server.node.settings.config_docs import configuration_markdown
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.sections import (
    ReplicationSection,
    RetentionSection,
    StoreSection,
)
from tandemlog_server.storage.config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_an_empty_file_is_a_master_on_loopback(tmp_path: Path) -> None:
    config = load_config(toml(tmp_path, ""))
    assert (config.role, config.listen) == ("master", "127.0.0.1:10911")


def test_the_environment_stands_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"TANDEMLOG_STORE__FLUSH": "sync", "TANDEMLOG_NODE_ID": "n7"})
    config = load_config(
        toml(tmp_path, 'node_id = "n1"\n[store]\nflush = "async"\nwarm_up = true\n')
    )
    assert (config.node_id, config.store.flush, config.store.warm_up) == (
        "n7",
        FlushMode.SYNC,
        True,
    )


def test_the_environment_replaces_one_key_of_a_section_that_is_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {"TANDEMLOG_STORE__FLUSH": "sync"})
    config = NodeConfig(store=StoreSection(directory=Path("/elsewhere"), warm_up=True))
    assert config.store == StoreSection(
        directory=Path("/elsewhere"), warm_up=True, flush=FlushMode.SYNC
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rolle = 1", "unknown key rolle; valid: advertise, clock_tolerance_ms"),
        ("[store]\nflushh = 1", "unknown key store.flushh; valid in [store]: buffered"),
        ("[store.retention]\nx = 1", "valid in [store.retention]: check_interval_ms"),
        ('[store]\nflush = "synk"', "store.flush: Input should be 'async' or 'sync' (got 'synk')"),
        ('role = "slave"', "master: a slave needs the endpoint of its master"),
        ('listen = "nowhere"', "listen: must be host:port"),
        ('listen = "::1:99"', "listen: an IPv6 address must be in brackets"),
        ("[store]\nqueue_file_size = 21", "queue_file_size must be a multiple of 20"),
        ("[store.retention]\ndelete_hours = [24]", "delete_hours must be hours of a day"),
        ("[replication]\nmin_in_sync = 2", 'needs replication.mode = "sync"'),
        ("[replication]\ndead_after_ms = 1", "dead_after_ms (1) must be at least twice"),
        ("role =", "is not TOML"),
        pytest.param("role = " + "9" * 5_000, "is not TOML", id="digits"),
        pytest.param("role = " + "[" * 5_000, "is not TOML", id="brackets"),
    ],
)
def test_a_fault_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    path = toml(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert said in str(raised.value)
    assert str(raised.value).startswith(str(path))


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(toml(tmp_path, "a = 1\nb = 2\n"))
    assert len(str(raised.value).splitlines()) == 2


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/x\.toml: No such file"):
        load_config(Path("/nowhere/x.toml"))


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"TANDEMLOG_STROE__FLUSH": "sync"})
    with pytest.raises(ConfigError, match="unknown environment variable TANDEMLOG_STROE__FLUSH"):
        load_config(None)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TANDEMLOG_STORE__FLUSH", "x", "TANDEMLOG_STORE__FLUSH: store.flush: Input should be"),
        ("tandemlog_store__flush", "x", "tandemlog_store__flush: store.flush: Input should be"),
        ("TANDEMLOG_STORE", '{"flush": "x"}', "TANDEMLOG_STORE: store.flush: Input should be"),
        ("TANDEMLOG_STORE", "5", "TANDEMLOG_STORE: store: Input should be"),
        ("TANDEMLOG_STORE", "{x", "TANDEMLOG_STORE: must be JSON: Expecting"),
        ("TANDEMLOG_LISTEN", "x", "TANDEMLOG_LISTEN: listen: must be host:port"),
        (
            "TANDEMLOG_STORE__RETENTION__DELETE_HOURS",
            '["x"]',
            "TANDEMLOG_STORE__RETENTION__DELETE_HOURS: store.retention.delete_hours.0: Input",
        ),
        (
            "TANDEMLOG_STORE__RETENTION__DELETE_HOURS",
            "4,5",
            "TANDEMLOG_STORE__RETENTION__DELETE_HOURS: must be JSON: Extra data",
        ),
    ],
)
def test_a_bad_variable_is_named_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    monkeypatch.setattr("os.environ", {name: text, "TANDEMLOG_NODE_ID": "n7"})
    with pytest.raises(ConfigError) as raised:
        load_config(toml(tmp_path, '[store]\nflush = "async"\n'))
    assert str(raised.value).startswith(said)


def test_a_bad_file_is_named_beside_good_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "os.environ", {"TANDEMLOG_STORE": '{"buffered": true}', "TANDEMLOG_NODE_ID": "n7"}
    )
    path = toml(tmp_path, '[store]\nflush = "x"\n')
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value).startswith(f"{path}: store.flush: ")


def test_settings_that_exclude_each_other_name_the_file_and_what_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"TANDEMLOG_ROLE": "slave"})
    path = toml(tmp_path, "")
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value).startswith(f"{path} and TANDEMLOG_ROLE: master: a slave needs")


def test_variables_that_are_no_settings_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "os.environ",
        {
            "TANDEMLOG_ENDPOINT": "x:1",
            "TANDEMLOG_PORT": "tcp://10.0.0.1:10911",
            "TANDEMLOG_PORT_10911_TCP_ADDR": "10.0.0.1",
            "TANDEMLOG_SERVICE_HOST": "10.0.0.1",
        },
    )
    assert load_config(None).role == "master"


def test_sections_have_every_field_of_the_packages_with_its_default() -> None:
    left_out = {"confirm", "retention"}
    for section, settings in (
        (StoreSection, StoreConfig(Path("store"))),
        (RetentionSection, RetentionConfig()),
    ):
        names = {each.name for each in fields(settings)} - left_out
        assert names == set(section.model_fields) - left_out
        for name in names - {"store_host"}:
            assert getattr(section(), name) == getattr(settings, name), name
    settings = HaConfig("c", "n")
    own = {"cluster_id", "node_id", "role", "endpoint", "http_endpoint", "store_host"}
    own |= {"security"}  # of [tls] and [security]
    names = {each.name for each in fields(settings)} - own - {"master_endpoint", "replication"}
    assert names == set(ReplicationSection.model_fields) - {"mode"}
    for name in names:
        assert getattr(ReplicationSection(), name) == getattr(settings, name), name


def test_the_packages_get_their_settings() -> None:
    config = NodeConfig(
        role="slave",
        master="10.0.0.1:1",
        store=StoreSection(flush=FlushMode.SYNC),
        replication=ReplicationSection(mode=Replication.SYNC, min_in_sync=2),
    )
    store = config.store_config(store_host="10.0.0.2:1")
    assert (store.flush, store.store_host, store.confirm) == (
        FlushMode.SYNC,
        "10.0.0.2:1",
        ConfirmSource.REPLICATION,
    )
    ha = config.ha_config(endpoint="a:1", http_endpoint="a:2", store_host="10.0.0.2:1")
    assert (ha.role, ha.master_endpoint, ha.required) == (Role.SLAVE, "10.0.0.1:1", 2)


def test_endpoints_are_split() -> None:
    assert split_endpoint("localhost:1") == ("localhost", 1)
    assert split_endpoint("[::1]:65535") == ("::1", 65535)
    for wrong in ("", "x", "x:", ":1", "x:70000", "x:-1"):
        with pytest.raises(ValueError, match="host:port"):
            split_endpoint(wrong)


def test_the_documentation_is_current() -> None:
    held = (ROOT / "docs" / "configuration.md").read_text()
    assert held == configuration_markdown(), "run `make docs`: docs/configuration.md is out of date"
