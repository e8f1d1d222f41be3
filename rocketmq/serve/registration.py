"""This master at RocketMQ's name servers, so that slave brokers find it: broker 0 of its name.

    connect ▸ who is broker 0 of this name? ▸ register ▸ again every 30 s ▸ ... ▸ unregister
       ▲                                          │
       └────────────── 10 s later ◂── failed ◂────┘

No topic is registered, so RocketMQ's clients get no route to this node. A name server forgets a
broker when the connection on which it has registered ends, so that stays open.

A name server replaces a broker's address when another broker registers as broker 0 of the same
name: clients of a live broker would then be sent to this node. So the node asks first, and
registers only if no broker answers at the registered address. The version in a registration is this
master's epoch: a name server ignores an older master of the same name while it knows the newer one.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import Mapping
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json

from ..wire import requests
from ..wire.client import RemotingClient
from ..wire.errors import BrokerError, BrokerRefusedError, NoBrokerError, WrongBrokerError
from ..wire.remoting import NOT_SUPPORTED
from .options import ServeOptions

logger = logging.getLogger(__name__)

REGISTER_S: Final = 30.0
RETRY_S: Final = 10.0
PROBE_S: Final = 2.0
UNREGISTER_S: Final = 1.0
HEARTBEAT_TIMEOUT_MS: Final = 90_000
"""When a name server of 5.x gives this node up; one of 4.x does after 120 s."""
MASTER: Final = "0"
CRC_MASK: Final = 0x7FFFFFFF
"""RocketMQ's checksum is a positive int."""


def registration_body(epoch: int) -> bytes:
    """RegisterBrokerBody with an empty table of topics."""
    version = {"counter": 1, "stateVersion": epoch, "timestamp": 0}
    return json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version,
                "mappingDataVersion": version,
                "topicConfigTable": {},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
    ).encode()


def master_address(body: bytes, broker_name: str) -> str:
    """The address of broker 0 of this name in the ClusterInfo `body`; empty if it lists none.
    Raises FormatError if `body` is no JSON."""
    node: object = store_json.loads(body)
    for key in ("brokerAddrTable", broker_name, "brokerAddrs"):
        node = node.get(key) if isinstance(node, Mapping) else None
    addresses = node if isinstance(node, Mapping) else {}
    return str({str(key): value for key, value in addresses.items()}.get(MASTER) or "")


class Registration:
    """See the module. `start`, then `stop`; lives in one event loop. Each name server has a task of
    its own, so one that does not answer holds up no other."""

    def __init__(
        self,
        options: ServeOptions,
        epoch: int,
        *,
        register_s: float = REGISTER_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._options = options
        self._epoch = epoch
        self._register_s, self._retry_s = register_s, retry_s
        self._tasks: list[asyncio.Task[None]] = []
        self._registered: dict[tuple[str, int], RemotingClient] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._keep(server), name="rocketmq-registration")
            for server in self._options.name_servers
        ]

    async def stop(self) -> None:
        """Unregister where this node is registered; it takes UNREGISTER_S at most."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        clients, self._registered = [*self._registered.values()], {}
        await asyncio.gather(*map(self._unregister, clients))

    async def _keep(self, server: tuple[str, int]) -> None:
        logged = ""
        while True:
            again = server in self._registered
            try:
                await self._register(server)
                now = "registered"
            except (BrokerError, WrongBrokerError) as error:
                now = str(error)
                await self._forget(server)
                if again:
                    continue  # the connection may just have ended
            except Exception as error:
                # a name server may send anything; this must not stop the others, or the next try
                logger.exception("registering at a RocketMQ name server failed")
                now = repr(error)
                await self._forget(server)
            if now != logged:
                self._log(server, now)
                logged = now
            await asyncio.sleep(self._register_s if server in self._registered else self._retry_s)

    def _log(self, server: tuple[str, int], now: str) -> None:
        name = f"{server[0]}:{server[1]}"
        if server in self._registered:
            logger.info(
                "registered at RocketMQ's name server %s as master of %s: address=%s ha=%s",
                name, self._options.broker_name, self._options.address, self._options.ha_address,
            )  # fmt: skip
        else:
            logger.warning("not registered at RocketMQ's name server %s: %s", name, now)

    async def _register(self, server: tuple[str, int]) -> None:
        client = self._registered.get(server)
        if client is not None:
            await self._check_free(client)
            await self._send_registration(client)
            return
        client = RemotingClient(*server)
        await client.__aenter__()
        try:
            await self._check_free(client)
            await self._send_registration(client)
        except BaseException:
            await client.__aexit__()
            raise
        self._registered[server] = client

    async def _send_registration(self, client: RemotingClient) -> None:
        body = registration_body(self._epoch)
        fields = {
            **self._fields(),
            "haServerAddr": self._options.ha_address,
            "heartbeatTimeoutMillis": str(HEARTBEAT_TIMEOUT_MS),
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & CRC_MASK),
        }
        await client.call(requests.REGISTER_BROKER, fields, body)

    def _fields(self) -> dict[str, str]:
        options = self._options
        return {
            "brokerName": options.broker_name,
            "brokerAddr": options.address,
            "clusterName": options.cluster_name,
            "brokerId": MASTER,
        }

    async def _check_free(self, client: RemotingClient) -> None:
        """Raises WrongBrokerError if a broker has the name, BrokerError if that cannot be told."""
        options = self._options
        info = await client.call(requests.GET_BROKER_CLUSTER_INFO)
        try:
            address = await asyncio.to_thread(master_address, info.body, options.broker_name)
        except FormatError as error:
            raise BrokerError(f"{client.address} sent no list of brokers: {error}") from error
        if address in ("", options.address) or not await self._is_broker(address):
            return
        raise WrongBrokerError(
            f"rocketmq.broker_name {options.broker_name!r} is the name of the broker at {address}, "
            "and its clients would be sent here instead: stop that broker, or give this node "
            "another name"
        )

    async def _is_broker(self, address: str) -> bool:
        """Whether a RocketMQ broker answers there, and not a tandemlog node. Raises BrokerError if
        that cannot be told: a name server soon forgets a dead broker."""
        host, _, port = address.rpartition(":")
        try:
            async with RemotingClient(host.strip("[]"), int(port), timeout_s=PROBE_S) as client:
                await client.call(requests.GET_BROKER_CONFIG)
        except NoBrokerError:
            return False
        except BrokerRefusedError as error:
            return error.code != NOT_SUPPORTED
        except ValueError:
            raise BrokerError(f"the name server has the address {address!r}") from None
        return True

    async def _unregister(self, client: RemotingClient) -> None:
        try:
            async with asyncio.timeout(UNREGISTER_S):
                await client.call(requests.UNREGISTER_BROKER, self._fields())
        except (BrokerError, TimeoutError) as error:
            logger.info("%s was not told that this node leaves: %s", client.address, error)
        finally:
            await client.__aexit__()

    async def _forget(self, server: tuple[str, int]) -> None:
        client = self._registered.pop(server, None)
        if client is not None:
            await client.__aexit__()
