"""A client's connection in memory: what was pushed to it, and how it answers what it is asked."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tandemlog_server.rocketmq.wire.remoting import RESPONSE_FLAG, Command


@dataclass
class PushedTo:
    """`answer` is raised or returned to each question."""

    peer: str = "ipv4:10.0.0.7:51234"
    local_address: tuple[str, int] = ("10.0.0.1", 9876)
    closed: bool = False
    pushed: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    answer: Command | Exception = field(default_factory=lambda: Command(0, flag=RESPONSE_FLAG))
    on_ended: list[Callable[[], None]] = field(default_factory=list)

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        self.pushed.append((code, fields, body))

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        self.asked.append((code, fields, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def on_close(self, callback: Callable[[], None]) -> None:
        self.on_ended.append(callback)
