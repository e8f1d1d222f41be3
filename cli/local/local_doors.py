"""The ports of RocketMQ's clients in a local cluster, and programs of one line that use them.

    n0 9876, n1 9877 …    name server and broker (remoting)     as far as these ports are free:
    n0 8081, n1 8082 …    the API of the 5.x clients (gRPC)     a free one where one is taken

So a program that was written for a broker on this machine finds the cluster without a change, and a
broker that runs already is no reason not to start one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tandemlog_server.node.settings.host_port import join, split_endpoint
from tandemlog_server.node.settings.listen_endpoints import ListenError, usable

HOST: Final = "127.0.0.1"
REMOTING_PORT: Final = 9876
"""RocketMQ's name server."""
GRPC_PORT: Final = 8081
"""RocketMQ's proxy."""


@dataclass(frozen=True, slots=True)
class DoorPorts:
    """The ports of the first node; None for the usual ones."""

    remoting: int | None = None
    grpc: int | None = None


def both_doors(ports: DoorPorts, count: int, taken: Collection[int]) -> tuple[list[str], list[str]]:
    """host:port of each node's doors, remoting and gRPC. Raises ListenError."""
    remoting = door_endpoints("remoting", ports.remoting, REMOTING_PORT, count, taken)
    used = {*taken, *(split_endpoint(each)[1] for each in remoting)}
    return remoting, door_endpoints("gRPC", ports.grpc, GRPC_PORT, count, used)


def door_endpoints(
    wire: str, first: int | None, usual: int, count: int, taken: Collection[int]
) -> list[str]:
    """host:port of a door for each of `count` nodes: `first` and the ports after it, or without it
    the usual ones, as far as they are free. `taken` are ports that the cluster itself needs. Raises
    ListenError for a given port that is not free."""
    what = f"RocketMQ's clients ({wire})"
    if first is not None:
        if clash := sorted(set(range(first, first + count)).intersection(taken)):
            raise ListenError(f"{what}: port {clash[0]} is another one of this cluster's own")
        return [usable(what, join(HOST, first + number)) for number in range(count)]
    chosen: list[str] = []
    for number in range(count):
        used = {*taken, *(split_endpoint(each)[1] for each in chosen)}
        chosen.append(_usual_or_free(what, usual + number, used))
    return chosen


def _usual_or_free(what: str, port: int, used: Collection[int]) -> str:
    endpoint = join(HOST, port)
    while split_endpoint(endpoint)[1] in used or not _is_free(endpoint):
        endpoint = usable(what, join(HOST, 0))
    return endpoint


def _is_free(endpoint: str) -> bool:
    try:
        usable("", endpoint)
    except ListenError:
        return False
    return True


def how_to_use(name_servers: Sequence[str], endpoints: Sequence[str], *, secure: bool) -> list[str]:
    """Lines for people, none without doors; programs in them work as they stand. `endpoints` are
    those of the 5.x clients."""
    if not name_servers:
        return []
    where = (
        f"RocketMQ's clients: name server {';'.join(name_servers)}, endpoints of the 5.x clients "
        f"{';'.join(endpoints)}"
    )
    if secure:
        return [
            f"{where}; over TLS with a client certificate, and with an access key of `tandemlog "
            "token new-key` (docs/security.md)"
        ]
    return [where, *programs(name_servers, endpoints)]


def programs(name_servers: Sequence[str], endpoints: Sequence[str]) -> list[str]:
    """A line for each language, which sends one message as it stands: name and program."""
    joined = ";".join(name_servers)
    listed = ", ".join(f'"{each}"' for each in name_servers)
    return [
        "Java: "
        "var producer = new org.apache.rocketmq.client.producer.DefaultMQProducer"
        f'("demo-producers"); producer.setNamesrvAddr("{joined}"); producer.start(); '
        "System.out.println(producer.send(new org.apache.rocketmq.common.message.Message"
        '("Demo", "hello".getBytes()))); producer.shutdown();',
        "Go: "
        "p, _ := rocketmq.NewProducer(producer.WithGroupName("
        f'"demo-producers"), producer.WithNameServer([]string{{{listed}}})); p.Start(); '
        'fmt.Println(p.SendSync(context.Background(), primitive.NewMessage("Demo", '
        '[]byte("hello")))); p.Shutdown()',
        "Python: "
        'from rocketmq.client import Message, Producer; p = Producer("demo-producers"); '
        f'p.set_namesrv_addr("{joined}"); p.start(); m = Message("Demo"); '
        'm.set_body("hello"); print(p.send_sync(m)); p.shutdown()',
        "Python 5.x: "
        "from rocketmq import ClientConfiguration, Credentials, Message, Producer; "
        f'p = Producer(ClientConfiguration("{";".join(endpoints)}", Credentials())); '
        'p.startup(); m = Message(); m.topic = "Demo"; m.body = b"hello"; print(p.send(m)); '
        "p.shutdown()",
    ]
