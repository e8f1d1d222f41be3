"""Requests of a RocketMQ client as a method of the door gets them, without a connection."""

from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command


class Connected:
    """A connection to which nothing is pushed."""

    peer = "ipv4:10.0.0.7:51234"
    local_address = ("10.0.0.1", 10_911)
    closed = False

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        raise AssertionError("nothing is pushed here")

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        raise AssertionError("nothing is asked here")

    def on_close(self, callback: object) -> None:
        """It stays open."""


def call_of(
    code: int,
    body: bytes = b"",
    *,
    oneway: bool = False,
    caller: Caller | None = None,
    **fields: object,
) -> RemotingCall:
    """The request `code` with these fields, as texts."""
    texts = {name: str(value) for name, value in fields.items()}
    request = Command(code, 7, ONEWAY_FLAG if oneway else 0, "", texts, body)
    return RemotingCall(request, caller or Caller(Connected.peer), Connected())


def records_in(body: bytes) -> list[Record]:
    """The records that lie end to end in the body of an answer."""
    records, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        records.append(decode_record(body[at : at + size]))
        at += size
    return records
