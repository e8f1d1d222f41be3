"""What the commands that talk to a cluster have in common."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.errors import TandemlogError, UnavailableError

from ..output.tables import error_console
from .options import check_endpoints, connection_options

Result = TypeVar("Result")
SILENT_S = 2.0
"""How long a command waits for a master before it tells what it waits for."""


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
        error_console().print(f"waiting for a master: {text}", markup=False, soft_wrap=True)
