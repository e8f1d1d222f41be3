"""The section [rocketmq] of a node's settings: RocketMQ's slave brokers as followers of a master.

    listen - 2    remoting, RocketMQ's "VIP channel": a slave asks for the topics here
    listen        remoting: groups, consumer offsets, delays
    ha_listen     the log

Neither wire has encryption or names its peers, so a slave is known by its address alone. Beyond
loopback the addresses must be listed, and it must be said that the log may be sent in the clear.
"""

from typing import Annotated

from annotated_types import MinLen
from pydantic import field_validator, model_validator

from tandemlog_server.rocketmq.serve.peers import Peers, plain_address

from .host_port import split_endpoint
from .sections import Section
from .security_sections import is_loopback

VIP_DISTANCE = 2
"""How far RocketMQ's port for administration is below the other one."""
WILDCARDS = ("0.0.0.0", "::")


class RocketmqSection(Section):
    """Slave brokers of RocketMQ that follow this node while it is the master. Their sizes of log
    and queue files have to be those of this node's store. `tandemlog list` shows them."""

    listen: str = ""
    """host:port of RocketMQ's remoting; empty means that no broker can follow. The port 2 below is
    used too; port 0 means free ports."""
    ha_listen: str = ""
    """host:port at which slave brokers get the log; if empty, the port above that of listen."""
    advertise: str = ""
    """host:port that name servers are told; if empty, the value of listen. The host has to be an IP
    address that slave brokers reach."""
    ha_advertise: str = ""
    """host:port that name servers are told for the log; if empty, the host of advertise and the
    port of ha_listen."""
    broker_name: str = ""
    """brokerName of the slave brokers; required with name_servers. A node does not register under
    the name of a broker that is alive."""
    cluster_name: Annotated[str, MinLen(1)] = "DefaultCluster"
    """brokerClusterName of the slave brokers."""
    name_servers: tuple[str, ...] = ()
    """host:port of each of RocketMQ's name servers. The node registers there as master without
    topics, so that RocketMQ's clients do not send to it."""
    slaves: tuple[str, ...] = ()
    """IP addresses and networks (10.0.0.0/24) from which slave brokers may come; required if listen
    or ha_listen is no loopback address. Empty means this machine."""
    in_sync_slaves: tuple[str, ...] = ()
    """IP addresses of slave brokers that count as in-sync replicas, one broker at each. They get
    the log before it is confirmed, and acknowledge what they have written, which a power failure
    can take back: RocketMQ does not wait for its fsync. Topics and groups reach them up to a minute
    late. Not with a coordinator: a broker cannot be elected."""
    plaintext: bool = False
    """Whether the log may leave this machine without encryption; needed if listen or ha_listen is
    no loopback address, unless insecure = true is set for the whole node."""

    @field_validator("listen", "ha_listen", "advertise", "ha_advertise")
    @classmethod
    def _is_endpoint(cls, value: str) -> str:
        if value:
            split_endpoint(value)
        return value

    @field_validator("name_servers")
    @classmethod
    def _are_endpoints(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            split_endpoint(each)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "RocketmqSection":
        peers = self.peers()
        set_keys = sorted(self.model_fields_set - {"listen"})
        if not self.listen:
            if set_keys:
                raise ValueError(f"listen: required with {', '.join(set_keys)}")
            return self
        if 0 < split_endpoint(self.listen)[1] <= VIP_DISTANCE:
            raise ValueError("listen: the port must be above 2, because the port 2 below is used")
        if self.name_servers and not self.broker_name:
            raise ValueError("broker_name: required with name_servers: slaves find it by this name")
        for address in self.in_sync_slaves:
            if not peers.admits(address):
                raise ValueError(f"in_sync_slaves: {address} is not among slaves; list it there")
        return self

    @property
    def on(self) -> bool:
        """Whether slave brokers may follow at all."""
        return bool(self.listen)

    def peers(self) -> Peers:
        """Who may come, and who counts. Raises ValueError for what is no address or network."""
        for address in self.in_sync_slaves:
            plain_address(address)
        return Peers.of(self.slaves, self.in_sync_slaves)


def rocketmq_fault(
    section: RocketmqSection, others: dict[str, str], *, elects: bool, insecure: bool
) -> str:
    """Why a node must not start with this section; empty if it may. `others` are what it listens
    on besides, key -> host:port."""
    if section.on and (fault := _same_port(section, others)):
        return fault
    if section.in_sync_slaves and elects:
        return (
            "rocketmq.in_sync_slaves: not with coordinator.endpoints, because a broker cannot be "
            "elected and nothing else may hold acknowledged messages alone; leave the addresses "
            "in rocketmq.slaves only"
        )
    for key in ("listen", "ha_listen"):
        value = getattr(section, key)
        host = split_endpoint(value)[0] if value else ""
        if not host or is_loopback(host):
            continue
        if not section.slaves:
            return (
                f"rocketmq.{key}: other machines reach {host}, and RocketMQ's wire names no one: "
                "give rocketmq.slaves, the addresses from which slave brokers may come"
            )
        if not (insecure or section.plaintext):
            return (
                f"rocketmq.{key}: other machines reach {host}, and RocketMQ's wire has no "
                "encryption: set rocketmq.plaintext = true where the network is trusted, or listen "
                "on 127.0.0.1"
            )
    return ""


def _same_port(section: RocketmqSection, others: dict[str, str]) -> str:
    """Which two keys name one port: RocketMQ's usual ports are also tandemlog's."""
    host, port = split_endpoint(section.listen)
    others_ports = {key: split_endpoint(value) for key, value in others.items() if value}
    own = {"listen": (host, port)}
    if port:
        own["listen (2 below)"] = host, port - VIP_DISTANCE
        own["ha_listen"] = host, port + 1
    if section.ha_listen:
        own["ha_listen"] = split_endpoint(section.ha_listen)
    for key, mine in own.items():
        for other, theirs in others_ports.items():
            if mine[1] and _overlap(mine, theirs):
                return f"rocketmq.{key}: port {mine[1]} is that of {other}: give another one"
        others_ports[f"rocketmq.{key}"] = mine
    return ""


def _overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    hosts = {one[0], other[0]}
    return one[1] == other[1] and (len(hosts) == 1 or bool(hosts.intersection(WILDCARDS)))
