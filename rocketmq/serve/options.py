"""What a node that is followed by RocketMQ's brokers must be told."""

from dataclasses import dataclass

from .peers import Peers


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Addresses are (host, port): `remoting` and `vip` answer requests, `ha` sends the log.
    `address` and `ha_address` are texts, host:port as others reach the two."""

    remoting: tuple[str, int]
    vip: tuple[str, int]
    ha: tuple[str, int]
    address: str
    ha_address: str
    broker_name: str
    cluster_name: str
    name_servers: tuple[tuple[str, int], ...]
    peers: Peers
