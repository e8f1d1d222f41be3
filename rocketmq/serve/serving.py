"""All that a master shows to RocketMQ, for one term: the HA port, the remoting ports, and the
registration at name servers once both are open."""

import logging

from tandemlog_server.ha.master.replication_master import ReplicationMaster

from .ha_server import HaServer
from .options import ServeOptions
from .registration import Registration
from .remoting_server import RemotingServer

logger = logging.getLogger(__name__)


class BrokerServing:
    """See the module. `start`, then `stop`, before the term ends; a failed `start` needs no
    `stop`. Lives in one event loop."""

    def __init__(self, master: ReplicationMaster, options: ServeOptions) -> None:
        self.ha = HaServer(master, options.peers)
        self._master = master
        self._options = options
        self._remoting = RemotingServer(master.store, options.peers)
        self._registration = Registration(options, master.epoch)

    async def start(self) -> None:
        """Raises OSError if an address cannot be listened on."""
        options = self._options
        try:
            await self._remoting.start(options.remoting, options.vip)
            await self.ha.start(options.ha)
        except BaseException:
            await self._remoting.stop()
            await self.ha.stop()
            raise
        self._master.foreign_rows = self.ha.rows
        self._registration.start()
        logger.info(
            "open for RocketMQ's slave brokers: remoting=%s ha=%s name=%s",
            options.address, options.ha_address, options.broker_name or "none",
        )  # fmt: skip

    async def stop(self) -> None:
        """From the first line on no slave is sent anything."""
        await self.ha.stop()
        self._master.foreign_rows = list
        await self._remoting.stop()
        await self._registration.stop()
