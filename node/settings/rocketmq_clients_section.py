"""The section [rocketmq_clients] of a node's settings: the port of RocketMQ's own clients.

    [rocketmq_clients]
    listen = "0.0.0.0:9876"
    advertise = "10.0.0.7:9876"

The port is name server and broker in one. Its wire has the TLS of the node by its first byte, and
knows callers by signatures or certificates, so the rules for addresses that other machines reach
are those of the node, with one exception: `plaintext`.
"""

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
    broker_name: str = ""
    """brokerName that clients see, the same on all nodes of a cluster; if empty, cluster_id."""
    cluster_name: Annotated[str, MinLen(1)] = "DefaultCluster"
    """Cluster that clients see, the same on all nodes of a cluster."""
    auto_create_topics: bool = True
    """Whether a message to a topic that does not exist creates it, as RocketMQ's broker does by
    default."""
    auto_create_queues: Annotated[int, Ge(1), Le(1024)] = 8
    """Maximum number of queues of a topic that is created so. A client asks for 4 by default."""
    plaintext: bool = False
    """Whether clients may come without encryption to a node with [tls], or to an address that other
    machines reach. Their secrets are not sent, their messages can be read on the way."""

    @field_validator("listen", "advertise")
    @classmethod
    def _is_endpoint(cls, value: str) -> str:
        if value:
            split_endpoint(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "RocketmqClientsSection":
        set_keys = sorted(self.model_fields_set - {"listen"})
        if not self.listen and set_keys:
            raise ValueError(f"listen: required with {', '.join(set_keys)}")
        if self.listen and not self.advertise and split_endpoint(self.listen)[0] in WILDCARDS:
            raise ValueError(
                "advertise: required because listen is a wildcard: give host:port at which clients "
                "reach this node"
            )
        if self.advertise and split_endpoint(self.advertise)[0] in WILDCARDS:
            raise ValueError("advertise: a wildcard is no address that a client can reach")
        return self

    @property
    def on(self) -> bool:
        """Whether there is such a port at all."""
        return bool(self.listen)


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
    if not section.on:
        return ""
    host, port = split_endpoint(section.listen)
    for key, value in others.items():
        other = split_endpoint(value) if value else ("", 0)
        hosts = {host, other[0]}
        if port and other[1] == port and (len(hosts) == 1 or hosts.intersection(WILDCARDS)):
            return f"rocketmq_clients.listen: port {port} is that of {key}: give another one"
    if insecure or is_loopback(host):
        return ""
    lacking = ""
    if not proven:
        lacking = "a proof of who calls: set security.access_file (docs/security.md)"
    elif not (tls or section.plaintext):
        lacking = (
            "TLS: set tls.cert_file and tls.key_file, or rocketmq_clients.plaintext = true where "
            "messages may travel in the clear"
        )
    if not lacking:
        return ""
    return (
        f"rocketmq_clients.listen: other machines reach {host}, and this node lacks {lacking}; or "
        "listen on 127.0.0.1; or, where every machine of the network is trusted, set "
        "insecure = true"
    )
