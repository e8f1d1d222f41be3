"""A node as a process: it runs until a signal, or until it cannot continue.

SIGTERM, SIGINT   stop cleanly
SIGHUP            the terminal was closed: stop cleanly. Without a terminal it is a habit of log
                  rotation and of service managers (reload), and there is nothing to reload: files
                  of certificates and access are read again when they change, and the log is stderr
"""

import asyncio
import logging
import signal
import sys
from pathlib import Path

from .node import Node
from .process.memory_at_rest import collect_rarely
from .process.service_manager import said_ready
from .settings.node_config import NodeConfig

logger = logging.getLogger(__name__)


async def run_node(
    config: NodeConfig, *, path: Path | None = None, ignore_interrupt: bool = False
) -> None:
    """Run a node until one of the signals that stop it; further ones change nothing.

    Raises what `Node.start` raises, and what made it end by itself.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, *(() if ignore_interrupt else (signal.SIGINT,))):
        loop.add_signal_handler(number, stop.set)
    at_terminal = sys.stderr is not None and sys.stderr.isatty()
    loop.add_signal_handler(signal.SIGHUP, stop.set if at_terminal else _keep_running)
    node = Node(config, path=path)
    await node.start()
    collect_rarely()
    stopped = asyncio.create_task(stop.wait())
    async with said_ready(f"serving on {node.endpoints.listen}"):
        await asyncio.wait((stopped, node.fatal), return_when=asyncio.FIRST_COMPLETED)
    await node.stop()
    if node.fatal.done():
        raise node.fatal.result()
    # what is left over when the loop ends is only the wait itself
    stopped.cancel()


def _keep_running() -> None:
    logger.info("SIGHUP changes nothing: to stop, send SIGTERM; files that change are read again")
