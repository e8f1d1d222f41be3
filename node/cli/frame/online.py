"""What the commands that talk to a cluster have in common."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom

from .options import check_endpoints, connection_options

Result = TypeVar("Result")


def run_admin(
    endpoint: str,
    timeout_s: float,
    work: Callable[[AsyncAdmin], Awaitable[Result]],
    read_from: ReadFrom = ReadFrom.ANY,
) -> Result:
    """`work` with an administrator's client of the cluster; raises what it raises."""

    async def run() -> Result:
        options = connection_options(timeout_s)
        async with AsyncAdmin(
            check_endpoints(endpoint), read_from=read_from, connection=options
        ) as admin:
            return await work(admin)

    return asyncio.run(run())
