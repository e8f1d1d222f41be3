"""Settings: file under environment, every fault named with its key, packages' own rules."""

from pathlib import Path
from typing import Any

import pytest

from tandemlog_server.ha.config import Replication, Role
from tandemlog_server.node.settings.config_docs import configuration_markdown
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import ReplicationSection, StoreSection
from tandemlog_server.storage.config import ConfirmSource, FlushMode, StoreConfig

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
        ("rolle = 1", "unknown key rolle; valid: advertise, archive, clock_tolerance_ms"),
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


def test_keys_of_one_section_that_exclude_each_other_name_what_is_set_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong key may be the file's although a variable gives another one."""
    monkeypatch.setattr(
        "os.environ", {"TANDEMLOG_STORE__FLUSH": "sync", "TANDEMLOG_ROLE": "master"}
    )
    path = toml(tmp_path, "[store]\nqueue_file_size = 21\n")
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value) == (
        f"{path} and TANDEMLOG_STORE__FLUSH: store: queue_file_size must be a multiple of 20: 21"
    )


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ('[coordinator]\npassword = "geheim"', {}),
        ('[coordinator]\nendpoints = ["a:1"]\ncert_file = "x"\npassword = "geheim"', {}),
        ('[coordinator]\nendpoints = ["a:1"]\npassword = ["geheim"]', {}),
        ("", {"TANDEMLOG_COORDINATOR": '{"password": "geheim"'}),
    ],
)
def test_no_error_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, variables: dict[str, str]
) -> None:
    monkeypatch.setattr("os.environ", variables)
    with pytest.raises(ConfigError) as raised:
        load_config(toml(tmp_path, text))
    assert "geheim" not in str(raised.value)
    assert "coordinator" in str(raised.value).lower()


def test_a_setting_of_the_package_alone_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown key store\.confirm; valid in \[store\]: buffered"
    ):
        load_config(toml(tmp_path, '[store]\nconfirm = "local"\n'))


def test_bounds_hold_without_a_file_too() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"max_queues": (1 << 22) + 1}, "max_queues must be at most 4194304"),
        ({"max_message_size": 0}, "max_message_size must be above 0: 0"),
        ({"set_aside_kept": -1}, "set_aside_kept must be at least 0: -1"),
    )
    for wrong, words in cases:
        with pytest.raises(ValueError, match=words):
            StoreConfig(Path("store"), **wrong)


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


def test_the_packages_get_their_settings() -> None:
    config = NodeConfig(
        role="slave",
        master="10.0.0.1:1",
        store=StoreSection(flush=FlushMode.SYNC),
        replication=ReplicationSection(mode=Replication.SYNC, min_in_sync=2),
    )
    store = config.store_config(store_host="10.0.0.2:1")
    assert type(store) is StoreConfig, "which may also be given another source of confirmations"
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
