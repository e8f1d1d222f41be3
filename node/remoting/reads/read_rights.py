"""What a RocketMQ client needs in order to read: the rights of the other doors."""

from typing import Final

from ...access.caller import Caller
from ...access.identities import Right

RETRY: Final = "%RETRY%"


def require_reads(caller: Caller, group: str, topic: str) -> None:
    """To read `topic` as `group`; what is retried for a group belongs to it. Raises DeniedError."""
    if caller.restricted is None:
        return
    caller.require(Right.CONSUME, (group,))
    if topic != RETRY + group:
        caller.require(Right.READ, (topic,))
