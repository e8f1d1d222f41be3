"""Where a node listens, by which address others reach it, and what it writes into records."""

import errno
import random
import socket
from dataclasses import dataclass
from typing import Final

from .config_error import ConfigError
from .host_port import join, split_endpoint
from .node_config import AUTO, NodeConfig

_WILDCARDS = ("0.0.0.0", "::", "")

LOWEST_PORT: Final = 20_000
EPHEMERAL: Final = 32_768
"""Where the range begins that Linux gives to outgoing connections (ip_local_port_range)."""
TRIES: Final = 20


class ListenError(Exception):
    """An address that a node cannot listen on; the message names it and the setting."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """host:port texts; `http` is empty if there is no HTTP, `data` if there are no data
    connections; `store_host` is numeric. `rocketmq` is where RocketMQ's clients are listened to,
    `rocketmq_advertise` where they are told that it is; empty if there is no such port. The last
    two are the same for clients of the 5.x API."""

    listen: str
    advertise: str
    http: str
    data: str
    store_host: str
    rocketmq: str = ""
    rocketmq_advertise: str = ""
    rocketmq_grpc: str = ""
    rocketmq_grpc_advertise: str = ""

    @property
    def told(self) -> dict[str, str]:
        """What the other nodes are told, as arguments of `NodeConfig.ha_config`."""
        return {
            "endpoint": self.advertise,
            "http_endpoint": self.http,
            "store_host": self.store_host,
            "rocketmq_endpoint": self.rocketmq_advertise,
            "rocketmq_grpc_endpoint": self.rocketmq_grpc_advertise,
        }


def choose_endpoints(config: NodeConfig) -> Endpoints:
    """Ports for those given as 0, and a look whether the addresses are free.

    Raises ListenError, and ConfigError if others could not be told how to reach this node.
    """
    listen = usable("listen", config.listen)
    http = usable("http_listen", config.http_listen) if config.http_listen else ""
    host, port = split_endpoint(listen)
    # one that any free port will do for is bound when it is needed, and may fail then
    data = config.data_endpoint
    if data and config.data_listen != AUTO:
        data = usable("data_listen", data)
    advertise = config.advertise
    if not advertise:
        if host in _WILDCARDS:
            raise ConfigError(
                f"advertise: required because listen is a wildcard ({config.listen}): give "
                "host:port at which the other nodes and the clients reach this one"
            )
        advertise = listen
    elif split_endpoint(advertise)[1] == 0:
        advertise = join(split_endpoint(advertise)[0], port)
    section = config.rocketmq_clients
    rocketmq = _of_clients("listen", section.listen, section.advertise)
    grpc = _of_clients("grpc_listen", section.grpc_listen, section.grpc_advertise)
    # RocketMQ's clients read a message by its id from the address in the id
    store_host = config.store.store_host or numeric(rocketmq[1] or advertise)
    return Endpoints(listen, advertise, http, data, store_host, *rocketmq, *grpc)


def _of_clients(key: str, listen: str, advertise: str) -> tuple[str, str]:
    """A port of RocketMQ's clients: where it is, and what they are told."""
    if not listen:
        return "", ""
    listen = usable(f"rocketmq_clients.{key}", listen)
    host, port = split_endpoint(advertise or listen)
    return listen, join(host, port or split_endpoint(listen)[1])


def numeric(endpoint: str) -> str:
    """`endpoint` with the address in place of a name, as records want it. Raises ConfigError."""
    host, port = split_endpoint(endpoint)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"store.store_host: {host} cannot be resolved ({error}); set it to ip:port"
        ) from error
    return join(str(addresses[0][4][0]).partition("%")[0], port)


def usable(what: str, endpoint: str) -> str:
    """`endpoint`, with a free port where it says 0. Raises ListenError that begins with `what`.

    The port is bound and let go before the store is opened: a recovery may take a while, and what
    will not work afterwards should be said first.
    """
    host, port = split_endpoint(endpoint)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if family == socket.AF_INET and not host.replace(".", "").isdigit():
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return join(host, _bound(family, host, port) if port else _free_port(family, host))
    except OSError as error:
        raise ListenError(f"{what}: cannot listen on {endpoint}: {_reason(error)}") from error


def _free_port(family: int, host: str) -> int:
    """A port that no outgoing connection takes before this node listens on it: the kernel gives
    those the ports from EPHEMERAL on. Raises OSError."""
    for port in random.SystemRandom().sample(range(LOWEST_PORT, EPHEMERAL), TRIES):
        try:
            return _bound(family, host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _bound(family, host, 0)


def _bound(family: int, host: str, port: int) -> int:
    """The port that a socket gets there; it is closed again."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _reason(problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return "another process uses the port"
    if problem.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return problem.strerror or str(problem)
