"""Where RocketMQ's slave brokers reach this node: the ports of [rocketmq], looked at and named."""

from dataclasses import dataclass

from tandemlog_server.rocketmq.serve.options import ServeOptions

from .config_error import ConfigError
from .host_port import join, split_endpoint
from .listen_endpoints import ListenError, usable
from .rocketmq_section import VIP_DISTANCE, WILDCARDS, RocketmqSection

TRIES = 50
"""Free ports that are looked at for three neighbours."""


@dataclass(frozen=True, slots=True)
class RocketmqEndpoints:
    """host:port texts; the last two are those that others use."""

    listen: str
    vip: str
    ha_listen: str
    advertise: str
    ha_advertise: str


def choose_rocketmq_endpoints(section: RocketmqSection) -> RocketmqEndpoints | None:
    """Free ports for those given as 0, and a look whether the addresses are free; None if the
    section is off. Raises ListenError, and ConfigError if brokers could not be told how to reach
    this node."""
    if not section.on:
        return None
    host, port = split_endpoint(section.listen)
    listen, vip = _neighbours(host) if port == 0 else _as_given(host, port)
    host, port = split_endpoint(listen)
    ha_listen = usable("rocketmq.ha_listen", section.ha_listen or join(host, port + 1))
    advertise = _advertised("advertise", section.advertise or listen, listen)
    ha_default = join(split_endpoint(advertise)[0], split_endpoint(ha_listen)[1])
    ha_advertise = _advertised("ha_advertise", section.ha_advertise or ha_default, ha_listen)
    return RocketmqEndpoints(listen, vip, ha_listen, advertise, ha_advertise)


def serve_options(section: RocketmqSection, endpoints: RocketmqEndpoints) -> ServeOptions:
    """The settings in the form of the package that serves."""
    return ServeOptions(
        remoting=split_endpoint(endpoints.listen),
        vip=split_endpoint(endpoints.vip),
        ha=split_endpoint(endpoints.ha_listen),
        address=endpoints.advertise,
        ha_address=endpoints.ha_advertise,
        broker_name=section.broker_name,
        cluster_name=section.cluster_name,
        name_servers=tuple(split_endpoint(each) for each in section.name_servers),
        peers=section.peers(),
    )


def _as_given(host: str, port: int) -> tuple[str, str]:
    listen = usable("rocketmq.listen", join(host, port))
    return listen, usable("rocketmq.listen (2 below)", join(host, port - VIP_DISTANCE))


def _neighbours(host: str) -> tuple[str, str]:
    """A free port whose neighbours are free too."""
    for _ in range(TRIES):
        port = split_endpoint(usable("rocketmq.listen", join(host, 0)))[1]
        try:
            usable("rocketmq.ha_listen", join(host, port + 1))
            return _as_given(host, port)
        except ListenError:
            continue
    raise ListenError(f"rocketmq.listen: no free port on {host} has free neighbours: give a port")


def _advertised(key: str, endpoint: str, listened: str) -> str:
    """`endpoint` as brokers are told it: with an address, and the port that is listened on where
    it says 0."""
    host, port = split_endpoint(endpoint)
    if host in WILDCARDS:
        raise ConfigError(
            f"rocketmq.{key}: required because rocketmq.listen is a wildcard: give the address at "
            "which slave brokers reach this node"
        )
    return join(host, port or split_endpoint(listened)[1])
