"""[rocketmq]: who may follow, from where, and what must be said before the log leaves a machine."""

import socket
from typing import Any

import pytest
from pydantic import ValidationError

from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_endpoints import (
    choose_rocketmq_endpoints,
    serve_options,
)
from tandemlog_server.node.settings.rocketmq_section import RocketmqSection

WIDE = {"listen": "0.0.0.0:10951", "advertise": "10.0.0.1:10951"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def node_with(**sections: Any) -> NodeConfig:
    """Of sections as a file has them."""
    return NodeConfig(**sections)


def section(**values: Any) -> RocketmqSection:
    return node_with(rocketmq=values).rocketmq


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"listen": "127.0.0.1:10951"},
        {"listen": "127.0.0.1:0", "in_sync_slaves": ["127.0.0.1"]},
        {**WIDE, "slaves": ["10.0.0.0/24"], "plaintext": True, "in_sync_slaves": ["10.0.0.7"]},
        {"listen": "127.0.0.1:10951", "name_servers": ["h:9876"], "broker_name": "a"},
    ],
)
def test_what_may_be_set(values: dict[str, Any]) -> None:
    assert section(**values).on is bool(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"slaves": ["10.0.0.1"]}, "listen: required with slaves"),
        ({"listen": "nowhere"}, "must be host:port"),
        ({"listen": "127.0.0.1:2"}, "the port must be above 2"),
        ({"listen": "127.0.0.1:9", "name_servers": ["h:1"]}, "broker_name: required"),
        ({"listen": "127.0.0.1:9", "name_servers": ["h"]}, "must be host:port"),
        ({"listen": "127.0.0.1:9", "slaves": ["10.0.0.300"]}, "10.0.0.300"),
        ({"listen": "127.0.0.1:9", "in_sync_slaves": ["n1"]}, "n1"),
        ({"listen": "127.0.0.1:9", "in_sync_slaves": ["10.0.0.1"]}, "is not among slaves"),
        (WIDE, "rocketmq.listen: other machines reach 0.0.0.0, and RocketMQ's wire names no one"),
        ({**WIDE, "slaves": ["10.0.0.1"]}, "has no encryption: set rocketmq.plaintext = true"),
        (
            {"listen": "127.0.0.1:9", "ha_listen": "10.0.0.1:9", "slaves": ["10.0.0.2"]},
            "rocketmq.ha_listen: other machines reach 10.0.0.1",
        ),
        ({"listen": "127.0.0.1:10911"}, "rocketmq.listen: port 10911 is that of listen"),
        ({"listen": "127.0.0.1:10913"}, "listen (2 below): port 10911 is that of listen"),
        ({"listen": "127.0.0.1:10920"}, "rocketmq.ha_listen: port 10921 is that of http_listen"),
        (
            {"listen": "127.0.0.1:10951", "ha_listen": "127.0.0.1:10951"},
            "rocketmq.ha_listen: port 10951 is that of rocketmq.listen",
        ),
    ],
)
def test_what_may_not_names_the_key_and_the_way_out(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        section(**values)
    assert said in str(refused.value)


def test_a_node_without_protection_needs_no_second_word() -> None:
    node_with(insecure=True, rocketmq={**WIDE, "slaves": ["10.0.0.1"]})
    with pytest.raises(ValidationError, match=r"give rocketmq\.slaves"):
        node_with(insecure=True, rocketmq=WIDE)


def test_a_broker_cannot_be_elected() -> None:
    counting = {"listen": "127.0.0.1:10951", "in_sync_slaves": ["127.0.0.1"]}
    coordinator = {"endpoints": ["h:1"]}
    node_with(coordinator=coordinator, rocketmq={"listen": "127.0.0.1:10951"})
    with pytest.raises(ValidationError, match="a broker cannot be elected"):
        node_with(coordinator=coordinator, rocketmq=counting)


def test_port_0_finds_a_row_of_free_ports() -> None:
    chosen = choose_rocketmq_endpoints(section(listen="127.0.0.1:0"))
    assert chosen is not None
    ports = [split_endpoint(each)[1] for each in (chosen.vip, chosen.listen, chosen.ha_listen)]
    assert ports == [ports[1] - 2, ports[1], ports[1] + 1]
    assert (chosen.advertise, chosen.ha_advertise) == (chosen.listen, chosen.ha_listen)


def test_brokers_are_told_the_advertised_addresses() -> None:
    values = section(
        listen="0.0.0.0:0",
        advertise="10.0.0.1:0",
        slaves=["10.0.0.0/24"],
        plaintext=True,
        name_servers=["ns1:9876", "[::1]:9876"],
        broker_name="a",
    )
    chosen = choose_rocketmq_endpoints(values)
    assert chosen is not None
    port = split_endpoint(chosen.listen)[1]
    options = serve_options(values, chosen)
    assert options.address == f"10.0.0.1:{port}"
    assert options.ha_address == f"10.0.0.1:{port + 1}"
    assert options.remoting == ("0.0.0.0", port)
    assert options.name_servers == (("ns1", 9876), ("::1", 9876))
    assert options.peers.admits("::ffff:10.0.0.9")
    assert not options.peers.admits("10.0.1.1")


def test_a_wildcard_needs_to_be_advertised() -> None:
    values = section(listen="0.0.0.0:0", slaves=["10.0.0.0/24"], plaintext=True)
    with pytest.raises(ConfigError, match=r"rocketmq\.advertise: required"):
        choose_rocketmq_endpoints(values)


@pytest.mark.parametrize(
    ("distance", "said"),
    [(0, "rocketmq.listen:"), (2, r"rocketmq.listen \(2 below\):"), (-1, "rocketmq.ha_listen:")],
)
def test_a_taken_port_is_named_with_its_setting(distance: int, said: str) -> None:
    chosen = choose_rocketmq_endpoints(section(listen="127.0.0.1:0"))
    assert chosen is not None
    port = split_endpoint(chosen.listen)[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port - distance))
        taken.listen()
        with pytest.raises(ListenError, match=f"{said} cannot listen on"):
            choose_rocketmq_endpoints(section(listen=f"127.0.0.1:{port}"))


def test_nothing_is_chosen_where_it_is_off() -> None:
    assert choose_rocketmq_endpoints(section()) is None
