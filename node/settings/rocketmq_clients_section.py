"""The section [rocketmq_clients] of a node's settings: the port of RocketMQ's own clients.

    [rocketmq_clients]
    listen = "0.0.0.0:9876"
    advertise = "10.0.0.7:9876"

The port is name server and broker in one. Its wire has the TLS of the node by its first byte, and
knows callers by signatures or certificates, so the rules for addresses that other machines reach
are those of the node, with one exception: `plaintext`.

    grpc_listen = "0.0.0.0:8081"
    grpc_advertise = "10.0.0.7:8081"

is the port of clients of the 5.x API, which is gRPC. It has TLS or has not, and the same rules.
"""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Le, MinLen
from pydantic import field_validator, model_validator

from .host_port import split_endpoint
from .rocketmq_section import WILDCARDS
from .sections import Section
from .security_sections import is_loopback


class RocketmqClientsSection(Section):
    """Clients of RocketMQ (Java 4.9 to 5.5, Go, C++) that use this node as their name server and
    broker. Every node of a cluster should have the port, since each tells clients of the others."""

    listen: str = ""
    """host:port for RocketMQ's clients; empty means none, port 0 any free port. It is what clients
    have as the address of their name server."""
    advertise: str = ""
    """host:port that clients are told for this node; if empty, the value of listen. Clients have to
    reach it: it may not be a wildcard."""
    grpc_listen: str = ""
    """host:port for RocketMQ's clients of the 5.x API (gRPC); empty means none, port 0 any free
    port. It is what clients have as their endpoints."""
    grpc_advertise: str = ""
    """host:port that clients of the 5.x API are told for this node; if empty, the value of
    grpc_listen. Clients have to reach it: it may not be a wildcard."""
    broker_name: str = ""
    """brokerName that clients see, the same on all nodes of a cluster; if empty, cluster_id."""
    cluster_name: Annotated[str, MinLen(1)] = "DefaultCluster"
    """Cluster that clients see, the same on all nodes of a cluster."""
    auto_create_topics: bool = True
    """Whether a message to a topic that does not exist creates it, as RocketMQ's broker does by
    default."""
    auto_create_queues: Annotated[int, Ge(1), Le(1024)] = 8
    """Maximum number of queues of a topic that is created so. A client asks for 4 by default."""
    max_clients: Annotated[int, Ge(1), Le(1_000_000)] = 10_000
    """Maximum number of producers and consumers that report to this node, of which one identity or
    host has its share. A client reports to every node."""
    max_members: Annotated[int, Ge(1), Le(100_000)] = 1_000
    """Maximum number of members of one group: each member gets the list of all."""
    plaintext: bool = False
    """Whether clients may come without encryption to a node with [tls], or to an address that other
    machines reach. Their secrets are not sent, their messages can be read on the way."""

    @field_validator("listen", "advertise", "grpc_listen", "grpc_advertise")
    @classmethod
    def _is_endpoint(cls, value: str) -> str:
        if value:
            split_endpoint(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "RocketmqClientsSection":
        set_keys = sorted(self.model_fields_set - {"listen", "grpc_listen"})
        if not (self.listen or self.grpc_listen) and set_keys:
            raise ValueError(f"listen or grpc_listen: required with {', '.join(set_keys)}")
        for listen, advertise in (("listen", "advertise"), ("grpc_listen", "grpc_advertise")):
            listens, told = getattr(self, listen), getattr(self, advertise)
            if told and not listens:
                raise ValueError(f"{listen}: required with {advertise}")
            if listens and not told and split_endpoint(listens)[0] in WILDCARDS:
                raise ValueError(
                    f"{advertise}: required because {listen} is a wildcard: give host:port at "
                    "which clients reach this node"
                )
            if told and split_endpoint(told)[0] in WILDCARDS:
                raise ValueError(f"{advertise}: a wildcard is no address that a client can reach")
        return self

    @property
    def on(self) -> bool:
        """Whether there is a port of either kind."""
        return bool(self.ports)

    @property
    def ports(self) -> dict[str, str]:
        """What it listens on: key -> host:port."""
        both = {"listen": self.listen, "grpc_listen": self.grpc_listen}
        return {key: value for key, value in both.items() if value}


def rocketmq_clients_fault(
    section: RocketmqClientsSection,
    others: dict[str, str],
    *,
    proven: bool,
    tls: bool,
    insecure: bool,
) -> str:
    """Why a node must not start with this section; empty if it may. `others` are what it listens
    on besides, key -> host:port; `proven`: callers have to prove who they are."""
    ports = section.ports
    taken = others
    for key, value in ports.items():
        if fault := _of_port(f"rocketmq_clients.{key}", value, taken):
            return fault
        taken = {**taken, f"rocketmq_clients.{key}": value}
    for key, value in ports.items():
        host = split_endpoint(value)[0]
        if insecure or is_loopback(host):
            continue
        lacking = ""
        if not proven:
            lacking = "a proof of who calls: set security.access_file (docs/security.md)"
        elif not (tls or section.plaintext):
            lacking = (
                "TLS: set tls.cert_file and tls.key_file, or rocketmq_clients.plaintext = true "
                "where messages may travel in the clear"
            )
        if lacking:
            return (
                f"rocketmq_clients.{key}: other machines reach {host}, and this node lacks "
                f"{lacking}; or listen on 127.0.0.1; or, where every machine of the network is "
                "trusted, set insecure = true"
            )
    return ""


def _of_port(name: str, endpoint: str, others: Mapping[str, str]) -> str:
    """Why this port cannot be listened on beside the others."""
    host, port = split_endpoint(endpoint)
    for key, value in others.items():
        other = split_endpoint(value) if value else ("", 0)
        hosts = {host, other[0]}
        if port and other[1] == port and (len(hosts) == 1 or hosts.intersection(WILDCARDS)):
            return f"{name}: port {port} is that of {key}: give another one"
    return ""
