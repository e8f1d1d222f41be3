"""What the commands that talk to a cluster have in common."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.reading.positions import QueueRange
from tandemlog.consume.work.work_admin import AsyncWorkAdmin
from tandemlog.errors import TandemlogError, UnavailableError

from ..output.tables import Format, write_note
from .options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    Timeout,
    check_endpoints,
    connection_options,
)

Result = TypeVar("Result")
SILENT_S = 2.0
"""How long a command waits for a master before it tells what it waits for."""

NodeOption = Annotated[
    str, typer.Option("--node", metavar="NODE", help="Only this node; without it every one.")
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Which cluster a command asks, how it shows the answer, and how long it tries."""

    endpoint: Endpoint = DEFAULT_ENDPOINT
    form: FormatOption = Format.TABLE
    timeout: Timeout = DEFAULT_TIMEOUT_S

    def ask(
        self,
        work: Callable[[AsyncAdmin], Awaitable[Result]],
        read_from: ReadFrom = ReadFrom.ANY,
        *,
        starting: bool = False,
    ) -> Result:
        """As run_admin."""
        return run_admin(self.endpoint, self.timeout, work, read_from, starting=starting)

    def ask_work(self, work: Callable[[AsyncWorkAdmin], Awaitable[Result]]) -> Result:
        """As run_work_admin."""
        return run_work_admin(self.endpoint, self.timeout, work)


def run_admin(
    endpoint: str,
    timeout_s: float,
    work: Callable[[AsyncAdmin], Awaitable[Result]],
    read_from: ReadFrom = ReadFrom.ANY,
    *,
    starting: bool = False,
) -> Result:
    """`work` with an administrator's client of the cluster; raises what it raises. `starting`: the
    cluster may not be there yet, or without a master: it is waited for, and stderr tells why."""

    async def run() -> Result:
        options = connection_options(timeout_s, starting=starting)
        async with AsyncAdmin(
            check_endpoints(endpoint), read_from=read_from, connection=options
        ) as admin:
            telling = asyncio.create_task(_tell_waiting(admin)) if starting else None
            try:
                return await work(admin)
            finally:
                if telling is not None:
                    telling.cancel()

    return asyncio.run(run())


def run_work_admin(
    endpoint: str, timeout_s: float, work: Callable[[AsyncWorkAdmin], Awaitable[Result]]
) -> Result:
    """`work` with an administrator's client of the work queues; raises what it raises."""

    async def run() -> Result:
        options = connection_options(timeout_s)
        async with AsyncWorkAdmin(check_endpoints(endpoint), connection=options) as admin:
            return await work(admin)

    return asyncio.run(run())


async def _tell_waiting(admin: AsyncAdmin) -> None:
    await asyncio.sleep(SILENT_S)
    try:
        topology = await admin.cluster()
        text = "" if topology.authority is not None else topology.asked_text()
    except UnavailableError as error:
        text = str(error)
    except TandemlogError:
        return  # the work itself will say it
    if text:
        write_note(f"waiting for a master: {text}")


async def each_node(admin: AsyncAdmin, node_id: str) -> list[str]:
    """The ids of the nodes to ask: this one, or without a name all that can be reached. Raises
    NoNodeError if there is none."""
    if node_id:
        return [node_id]
    nodes = (await admin.cluster()).nodes
    return [node.node_id for node in nodes if node.reachable and not node.is_broker]


async def all_ranges(admin: AsyncAdmin, topic: str, count: int) -> list[QueueRange]:
    """What each queue of a topic holds, empty ones too; more than `count` if more hold messages."""
    ranges = {each.queue_id: each for each in await admin.ranges(topic)}
    return [
        ranges.get(queue_id) or QueueRange(topic, queue_id, 0, 0, -1, -1)
        for queue_id in range(max(count, max(ranges, default=-1) + 1))
    ]
