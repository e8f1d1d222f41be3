"""RocketMQ's slave brokers follow this node while it is the master: [rocketmq] over its terms.

    begin(master)   the term has begun  ▸ ports open ▸ registered at name servers
    end()           before the term ends: slaves cut off ▸ ports closed ▸ unregistered

A port that is taken, or a name server that is down, never harms the node: it is logged, and tried
again.
"""

import asyncio
import logging

from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.rocketmq.serve.serving import BrokerServing

from ..process.tasks import cancelled
from ..settings.node_config import NodeConfig
from ..settings.rocketmq_endpoints import choose_rocketmq_endpoints, serve_options

logger = logging.getLogger(__name__)

RETRY_S = 5.0


class RocketmqServing:
    """See the module. `endpoints` is None where [rocketmq] is off: then nothing ever happens. Lives
    in one event loop. Raises ListenError and ConfigError, before the store is opened."""

    def __init__(self, config: NodeConfig) -> None:
        self.endpoints = choose_rocketmq_endpoints(config.rocketmq)
        self._options = (
            None if self.endpoints is None else serve_options(config.rocketmq, self.endpoints)
        )
        self._opening: asyncio.Task[None] | None = None
        self._serving: BrokerServing | None = None

    def begin(self, master: ReplicationMaster) -> None:
        """Serve in the term of `master`, as soon as the ports are free."""
        if self._options is not None:
            self._opening = asyncio.create_task(self._open(master), name="rocketmq")

    async def end(self) -> None:
        """From the first line on no slave is sent anything; a second call does nothing."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await cancelled(opening)
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    async def _open(self, master: ReplicationMaster) -> None:
        assert self._options is not None
        logged = ""
        while True:
            serving = BrokerServing(master, self._options)
            try:
                await serving.start()
            except OSError as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.error("RocketMQ's slave brokers cannot follow yet: %s", logged)
                await asyncio.sleep(RETRY_S)
            else:
                self._serving = serving
                return
