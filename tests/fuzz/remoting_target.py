"""A master in this process with a door for RocketMQ's clients, which frames must leave as it was.

OPEN     clients prove nothing
RIGHTS   frames are signed by an identity that has one topic and one group; what lies in another
         topic must not be in any answer

play    frames of one connection: each whole one is answered, in a sentence where it is refused
check   another client sends and reads what it did before
rest    connections, tasks and counted bytes are as few as at the beginning
verify  the store holds, and a node starts on it with every message of that other client
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.inner_node import SMALL
from fakes.remoting_calls import records_in
from fuzz.corpus import pack
from fuzz.loop_watch import LoopWatch
from fuzz.remoting_frames import GROUP, TOPIC, Frame, frame
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.door.remoting_proofs import signature_of
from tandemlog_server.node.remoting.door.remoting_server import RemotingServer
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.node.settings.security_sections import SecuritySection
from tandemlog_server.rocketmq.wire.remoting import Command, CommandReader, encode_command
from tandemlog_server.storage.tools.verify import verify

OPEN, RIGHTS = "open", "rights"
ANSWER_S = 30.0
SETTLE_S = 60.0
MOST_REMARK = 4_096
SECRET_TOPIC = "canary"
SECRET = b"a canary that others must not see"
KEY, ADMIN_KEY, PASSWORD = "small", "admin", "12345678"
ACCESS = f"""
[[identity]]
name = "admin"
admin = true
access_keys = [{{ key = "{ADMIN_KEY}", secret = "{PASSWORD}" }}]

[[identity]]
name = "small"
read = ["{TOPIC}"]
write = ["{TOPIC}"]
consume = ["{GROUP}"]
access_keys = [{{ key = "{KEY}", secret = "{PASSWORD}" }}]
"""
NEVER = ("Traceback", "unexpected error", "a bug in the node", "Error(", "NoneType")


@dataclass
class Target:
    """See the module. `watch` says how long the event loop stood."""

    folder: Path
    situation: str
    node: Node
    sent: int = 0
    watch: LoopWatch = field(default_factory=LoopWatch)
    answers: int = 0
    kinds: set[tuple[int, int]] = field(default_factory=set)
    kind: str = "remoting"
    rows: str = "frames"
    _tasks: int = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, situation: str) -> AsyncIterator["Target"]:
        made = cls(folder, situation, await _started(folder, situation))
        ticker = asyncio.create_task(made.watch.run())
        try:
            await made._admin(17, topic=SECRET_TOPIC, readQueueNums="1", writeQueueNums="1")
            await made._admin(17, topic=TOPIC, readQueueNums="4", writeQueueNums="4")
            await made.check()
            await asyncio.sleep(0.1)
            made._tasks = len(asyncio.all_tasks())
            yield made
        finally:
            ticker.cancel()
            await made.node.stop()

    @property
    def _server(self) -> RemotingServer:
        [server] = [each for each in self.node.rocketmq if isinstance(each, RemotingServer)]
        return server

    def trial(self, seed: int, number: int) -> Frame:
        return frame(seed, number, self._sign if self.situation == RIGHTS else None)

    def is_last(self, frame: Frame) -> bool:
        return frame.opaque is None

    def row(self, frame: Frame) -> dict[str, Any]:
        return {"code": frame.code, "opaque": frame.opaque, "data": pack(frame.data)}

    # ---- frames

    async def play(self, frames: Sequence[Frame]) -> str:
        """What was wrong with the answers; empty where nothing was. The last frame alone may be
        one that ends the connection."""
        reader, writer = await self._connect()
        waiting = {each.opaque: each.code for each in frames if each.opaque is not None}
        wire, wrong = CommandReader(), ""
        try:
            for each in frames:
                writer.write(each.data)
            async with asyncio.timeout(ANSWER_S):
                while waiting and (data := await reader.read(1 << 16)):
                    for answer in wire.feed(data):
                        wrong = wrong or self._wrong(answer, waiting)
        except TimeoutError:
            wrong = wrong or f"no answer to {sorted(set(waiting.values()))}"
        except ConnectionError:
            pass
        except ProtocolError as fault:
            wrong = f"an answer cannot be read: {fault}"
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        if waiting and not wrong:
            wrong = f"the connection ended without an answer to {sorted(set(waiting.values()))}"
        return wrong

    def _wrong(self, answer: Command, waiting: dict[int, int]) -> str:
        if not answer.is_response:
            return ""  # a question of the node, which no client has to answer
        code = waiting.pop(answer.opaque, None)
        self.answers += 1
        if self.situation == RIGHTS and SECRET in answer.body:
            return f"the answer to {code} has what its caller may not read"
        if code is None:
            return ""
        self.kinds.add((code, answer.code))
        if answer.code and not answer.remark.strip():
            return f"{code} is refused with {answer.code} and no sentence"
        if any(each in answer.remark for each in NEVER):
            return f"{code}: {answer.remark[:200]}"
        if len(answer.remark) > MOST_REMARK:
            return f"{code}: a sentence of {len(answer.remark)} characters"
        return ""

    # ---- others

    async def check(self) -> None:
        """One more message, and all that were sent, in their order."""
        fields = {
            "a": "p", "b": SECRET_TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0",
            "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false",
        }  # fmt: skip
        await self._admin(310, b"%s %d" % (SECRET, self.sent), **fields)
        self.sent += 1
        got: list[bytes] = []
        while len(got) < self.sent:
            answer = await self._admin(
                11, consumerGroup="canaries", topic=SECRET_TOPIC, queueId="0", sysFlag="6",
                queueOffset=str(len(got)), maxMsgNums="32", suspendTimeoutMillis="5000",
                subscription="*",
            )  # fmt: skip
            got += [each.body for each in records_in(answer.body)]
        assert got == [b"%s %d" % (SECRET, number) for number in range(self.sent)]

    async def rest(self) -> None:
        """Once all connections of before have ended."""
        async with asyncio.timeout(SETTLE_S):
            while self._left_over():  # noqa: ASYNC110 - there is no event for all of it
                await asyncio.sleep(0.05)

    def _left_over(self) -> str:
        server, node = self._server, self.node
        counts = {
            "connections": server.connections,
            "bytes of frames": server.held_bytes,
            "bytes of answers": node._turns.held_bytes,
            "calls": node._door.calls,
            "tasks": max(0, len(asyncio.all_tasks()) - self._tasks),
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)

    async def verify(self) -> None:
        """Stop, look at the store, and start again."""
        config = self.node.store.config
        await self.node.stop()
        report = await asyncio.to_thread(verify, config)
        assert report.finished
        assert report.faults == [], report.faults[:3]
        self.node = await _started(self.folder, self.situation)
        await self.check()

    # ---- connections

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.node.endpoints.rocketmq.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def _sign(self, fields: dict[str, str], body: bytes) -> None:
        fields.pop("Signature", None)
        fields["AccessKey"] = KEY
        fields["Signature"] = signature_of(PASSWORD, fields, body)

    async def _admin(self, code: int, body: bytes = b"", **fields: str) -> Command:
        fields["AccessKey"] = ADMIN_KEY
        fields["Signature"] = signature_of(PASSWORD, fields, body)
        reader, writer = await self._connect()
        wire = CommandReader()
        try:
            writer.write(encode_command(Command(code, 1, fields=fields, body=body)))
            async with asyncio.timeout(ANSWER_S):
                while True:
                    data = await reader.read(1 << 16)
                    assert data, "the connection has ended"
                    for answer in wire.feed(data):
                        assert answer.code in (0, 19, 20), f"{code}: {answer.code} {answer.remark}"
                        return answer
        finally:
            writer.close()


async def _started(folder: Path, situation: str) -> Node:
    access = ""
    if situation == RIGHTS:
        access = str(folder / "access.toml")
        await asyncio.to_thread(Path(access).write_text, ACCESS)
    node = Node(
        NodeConfig(
            listen="127.0.0.1:0",
            http_listen="",
            store=StoreSection(directory=folder / "store", **SMALL, max_message_size=100_000),
            rocketmq_clients=RocketmqClientsSection(listen="127.0.0.1:0"),
            security=SecuritySection(access_file=access),
        )
    )
    await node.start()
    return node
