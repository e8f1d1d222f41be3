"""Where the doors of RocketMQ's clients are in a local cluster, and what programs are told."""

import socket
from pathlib import Path

import pytest

from helpers.running import free_ports
from tandemlog_server.cli.local.local_cluster import LocalCluster, Wishes, plan_cluster
from tandemlog_server.cli.local.local_doors import DoorPorts, both_doors, door_endpoints, how_to_use
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.node.settings.listen_endpoints import ListenError


def two_free_ports() -> int:
    """The first of two ports in a row that are free."""
    for _ in range(50):
        (port,) = free_ports(1)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port + 1)):
                return port
    raise AssertionError("no two free ports")


@pytest.fixture
def first() -> int:
    return two_free_ports()


def test_the_usual_ports_are_taken_where_they_are_free(first: int) -> None:
    assert door_endpoints("doors", None, first, 2, ()) == [
        f"127.0.0.1:{first}",
        f"127.0.0.1:{first + 1}",
    ]


def test_a_port_of_another_process_has_a_free_one_in_its_place(first: int) -> None:
    with socket.create_server(("127.0.0.1", first)):
        one, two = door_endpoints("doors", None, first, 2, ())
    assert one not in (f"127.0.0.1:{first}", two)
    assert two == f"127.0.0.1:{first + 1}"


def test_a_port_of_the_cluster_itself_is_not_a_door(first: int) -> None:
    one, two = door_endpoints("doors", None, first, 2, {first + 1})
    assert one == f"127.0.0.1:{first}"
    assert two not in (one, f"127.0.0.1:{first + 1}")


def test_a_port_that_is_given_is_taken_or_refused(first: int) -> None:
    assert door_endpoints("doors", first, 1, 1, ()) == [f"127.0.0.1:{first}"]
    with socket.create_server(("127.0.0.1", first)), pytest.raises(ListenError, match="another"):
        door_endpoints("doors", first, 1, 1, ())
    with pytest.raises(ListenError, match=f"port {first} is another one of this cluster's"):
        door_endpoints("doors", first, 1, 1, {first})


def test_each_node_is_configured_with_its_door(tmp_path: Path, first: int) -> None:
    cluster = LocalCluster(
        tmp_path, plan_cluster(tmp_path, Wishes(slaves=1, rocketmq=True)), 20_000
    )
    grpc = two_free_ports()
    cluster.open_doors(DoorPorts(first, grpc))
    cluster.write()
    doors = [load_config(node.config).rocketmq_clients for node in cluster.nodes]
    for number, door in enumerate(doors):
        assert door.listen == f"127.0.0.1:{first + number}"
        assert door.grpc_listen == f"127.0.0.1:{grpc + number}"


def test_a_cluster_without_doors_has_none_and_says_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, plan_cluster(tmp_path, Wishes(slaves=0)), 20_000)
    cluster.open_doors()
    cluster.write()
    assert not load_config(cluster.nodes[0].config).rocketmq_clients.on
    assert how_to_use([], [], secure=False) == []


def test_a_secure_cluster_names_what_a_client_needs() -> None:
    (line,) = how_to_use(["127.0.0.1:9876"], ["127.0.0.1:8081"], secure=True)
    assert "TLS" in line
    assert "tandemlog token new-key" in line


def test_the_two_doors_of_a_node_have_ports_of_their_own(first: int) -> None:
    remoting, _ = both_doors(DoorPorts(first), 1, ())
    assert remoting == [f"127.0.0.1:{first}"]
    with pytest.raises(ListenError, match="another one of this cluster's"):
        both_doors(DoorPorts(first, first), 1, ())
