"""Is the process at an endpoint gone? A machine that is up refuses connections to a closed port.

No answer, a reset on the way or a name that cannot be resolved say nothing: the machine may be cut
off and its process alive. Then only the lease tells.
"""

import asyncio

ATTEMPTS = 3
PAUSE_S = 0.06
TIMEOUT_S = 0.3


async def port_is_closed(endpoint: str) -> bool:
    """Whether `endpoint` (host:port) refuses ATTEMPTS connections, one after the other."""
    host, _, port = endpoint.rpartition(":")
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        if not await _refused(host.strip("[]"), int(port)):
            return False
    return True


async def _refused(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
