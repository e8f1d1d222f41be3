"""Where a node listens, and what it says when it cannot."""

import socket

import pytest

from tandemlog_server.node.settings import listen_endpoints
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.listen_endpoints import (
    EPHEMERAL,
    LOWEST_PORT,
    ListenError,
    choose_endpoints,
)
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection


def test_port_0_becomes_a_free_port() -> None:
    chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0", http_listen="127.0.0.1:0"))
    assert chosen.listen == chosen.advertise == chosen.store_host
    assert not chosen.listen.endswith(":0")
    assert chosen.http not in ("", chosen.listen)


def test_ids_of_messages_name_the_address_that_rocketmqs_clients_read_them_from() -> None:
    plain = RocketmqClientsSection(listen="127.0.0.1:0")
    chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0", rocketmq_clients=plain))
    assert chosen.store_host == chosen.rocketmq_advertise != chosen.advertise
    named = RocketmqClientsSection(listen="127.0.0.1:0", advertise="10.0.0.7:9876")
    chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0", rocketmq_clients=named))
    assert chosen.store_host == "10.0.0.7:9876"


def test_clients_of_the_5x_api_have_a_port_of_their_own() -> None:
    section = RocketmqClientsSection(
        grpc_listen="127.0.0.1:0", grpc_advertise="mq.example.org:8081"
    )
    chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0", rocketmq_clients=section))
    assert chosen.rocketmq == chosen.rocketmq_advertise == ""
    assert not chosen.rocketmq_grpc.endswith(":0")
    assert chosen.told["rocketmq_grpc_endpoint"] == "mq.example.org:8081"


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ({"grpc_listen": "0.0.0.0:8081"}, "grpc_advertise: required because grpc_listen is a wild"),
        ({"listen": "127.0.0.1:1", "grpc_advertise": "h:1"}, "grpc_listen: required with grpc_adv"),
        ({"broker_name": "b"}, "listen or grpc_listen: required with broker_name"),
        ({"listen": "127.0.0.1:8", "grpc_listen": "127.0.0.1:8"}, "port 8 is that of rocketmq_cli"),
        ({"grpc_listen": "10.0.0.7:8081"}, "grpc_listen: other machines reach 10.0.0.7, and this"),
    ],
)
def test_ports_of_rocketmqs_clients_that_cannot_be_are_refused(
    section: dict[str, str], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        NodeConfig.model_validate({"listen": "127.0.0.1:0", "rocketmq_clients": section})


def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ListenError, match=f"listen: cannot listen on {endpoint}: another process"
        ):
            choose_endpoints(NodeConfig(listen=endpoint))
        with pytest.raises(ListenError, match="http_listen: cannot listen"):
            choose_endpoints(NodeConfig(listen="127.0.0.1:0", http_listen=endpoint))


def test_an_address_of_another_machine() -> None:
    with pytest.raises(ListenError, match="does not have that address"):
        choose_endpoints(NodeConfig(listen="192.0.2.1:0", insecure=True))


def test_a_wildcard_needs_to_be_advertised() -> None:
    with pytest.raises(ConfigError, match="advertise: required"):
        choose_endpoints(NodeConfig(listen="0.0.0.0:0", http_listen="", insecure=True))
    chosen = choose_endpoints(
        NodeConfig(listen="0.0.0.0:0", advertise="127.0.0.1:0", http_listen="", insecure=True)
    )
    assert chosen.advertise.split(":")[1] == chosen.listen.split(":")[1] != "0"
    assert chosen.http == ""


def test_records_carry_an_address_and_no_name() -> None:
    chosen = choose_endpoints(
        NodeConfig(listen="127.0.0.1:0", advertise="localhost:5", http_listen="")
    )
    assert chosen.advertise == "localhost:5"
    assert chosen.store_host in ("127.0.0.1:5", "[::1]:5")


def test_a_port_that_is_chosen_is_none_that_an_outgoing_connection_gets() -> None:
    """Between the choice and the listening lies a recovery, and clients connect meanwhile."""
    for _ in range(20):
        chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0"))
        assert LOWEST_PORT <= int(chosen.listen.rpartition(":")[2]) < EPHEMERAL


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(listen_endpoints, "LOWEST_PORT", port)
        monkeypatch.setattr(listen_endpoints, "EPHEMERAL", port + 1)
        monkeypatch.setattr(listen_endpoints, "TRIES", 1)
        chosen = choose_endpoints(NodeConfig(listen="127.0.0.1:0")).listen
    assert int(chosen.rpartition(":")[2]) not in (0, port)
