"""A master in this process with a door for the 5.x API, which calls must leave as it was.

OPEN     clients prove nothing
RIGHTS   calls are signed by an identity that has one topic and one group; what lies in another
         topic must not be in any answer

play    calls of one connection: each that is not left is answered, in a sentence where refused
check   another client sends a message, and gets it
rest    connections, tasks, counted bytes and Telemetry streams are as few as at the beginning, and
        what clients have left is leased no longer than they asked for
verify  the store holds, and a node starts on it with every message of that other client
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio

from fakes.inner_node import SMALL
from fakes.messaging_client import DOOR, MessagingClient
from fuzz.corpus import pack, unpack
from fuzz.loop_watch import LoopWatch
from fuzz.messaging_calls import (
    ANSWERS,
    TOPIC,
    Known,
    MessagingTrial,
    messaging_trial,
)
from fuzz.oracle import OWN_FAULT
from fuzz.remoting_target import (
    ACCESS,
    ADMIN_KEY,
    KEY,
    MOST_REMARK,
    NEVER,
    PASSWORD,
    RIGHTS,
    SECRET,
    SECRET_TOPIC,
    SETTLE_S,
)
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.messaging.messaging_call import HANDED_ON, SERVICE
from tandemlog_server.node.node import Node
from tandemlog_server.node.rocketmq_messaging import GRPC
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.node.settings.security_sections import SecuritySection
from tandemlog_server.rocketmq.messaging.signatures import signature_of
from tandemlog_server.storage.tools.verify import verify

MOST_ANSWERS = 64
CALL_S, LEAVE_S = 10.0, 0.3
DATE = "20260101T000000Z"
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass
class MessagingTarget:
    """See the module. `watch` says how long the event loop stood."""

    folder: Path
    situation: str
    node: Node
    sent: int = 0
    watch: LoopWatch = field(default_factory=LoopWatch)
    answers: int = 0
    kinds: set[tuple[str, int]] = field(default_factory=set)
    known: Known = field(default_factory=Known)
    kind: str = "messaging"
    rows: str = "calls"
    _tasks: int = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, situation: str) -> AsyncIterator["MessagingTarget"]:
        made = cls(folder, situation, await _started(folder, situation))
        ticker = asyncio.create_task(made.watch.run())
        try:
            async with made._other() as other:
                await other.send(TOPIC)
            await made.check()
            await asyncio.sleep(0.1)
            made._tasks = len(asyncio.all_tasks())
            yield made
        finally:
            ticker.cancel()
            await made.node.stop()

    # ---- a campaign's trials

    def trial(self, seed: int, number: int) -> MessagingTrial:
        return messaging_trial(seed, number, self.known, guarded=self.situation == RIGHTS)

    def is_last(self, _: MessagingTrial) -> bool:
        return False

    def row(self, trial: MessagingTrial) -> dict[str, Any]:
        return {
            "name": trial.name,
            "messages": [pack(each) for each in trial.messages],
            "headers": [list(each) for each in trial.headers],
            "leaves": trial.leaves,
        }

    async def play(self, trials: Sequence[MessagingTrial]) -> str:
        """What was wrong with the answers; empty where nothing was."""
        async with aio.insecure_channel(self._endpoint, options=_OPTIONS) as channel:
            found = await asyncio.gather(*(self._call(channel, each) for each in trials))
        return next(filter(None, found), "")

    async def _call(self, channel: aio.Channel, trial: MessagingTrial) -> str:
        open_call: Any = channel.stream_stream(f"/{SERVICE}/{trial.name}")
        within_s = CALL_S if trial.leaves is None else LEAVE_S
        call = open_call(metadata=self._headers(trial), timeout=within_s)
        encoded: list[bytes] = []
        try:
            await self._talk(call, trial, encoded)
            if trial.leaves is not None:
                return self._wrong(trial, encoded)
            code, details = await call.code(), await call.details()
        except (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError):
            # the node has ended the call while this side still wrote, or the client's time is over
            if trial.leaves is not None:
                return self._wrong(trial, encoded)
            code, details = await call.code(), await call.details()
        finally:
            call.cancel()
        return self._wrong(trial, encoded) or _status_fault(trial, code, details or "", encoded)

    async def _talk(self, call: Any, trial: MessagingTrial, encoded: list[bytes]) -> None:
        for each in trial.messages:
            await call.write(each)
        if trial.leaves is None:
            await call.done_writing()
        most = MOST_ANSWERS if trial.leaves is None else trial.leaves
        while len(encoded) < most or trial.leaves is None:
            answer = await call.read()
            if answer is aio.EOF:
                return
            encoded.append(answer)

    def _wrong(self, trial: MessagingTrial, encoded: Sequence[bytes]) -> str:
        answers: list[Message] = []
        for data in encoded:
            self.answers += 1
            if self.situation == RIGHTS and SECRET in data:
                return f"the answer to {trial.name} has what its caller may not read"
            try:
                answers.append(ANSWERS[trial.name].FromString(data))
            except DecodeError as fault:
                return f"an answer to {trial.name} cannot be read: {fault}"
        self.known.learn(answers)
        for each in answers:
            if each.HasField("status"):
                status: v2.Status = each.status  # type: ignore[attr-defined]
                self.kinds.add((trial.name, status.code))
                if wrong := _sentence_fault(status):
                    return f"{trial.name}: {wrong}"
        return ""

    def _headers(self, trial: MessagingTrial) -> tuple[tuple[str, str], ...]:
        signed = _signed(KEY) if self.situation == RIGHTS else {}
        headers = {**signed, **dict(trial.headers)}
        return tuple(headers.items())

    # ---- others

    async def check(self) -> None:
        """One more message; a consumer of all of them gets it, and nothing else."""
        async with self._other() as other:
            body = b"%s %d" % (SECRET, self.sent)
            sent = await other.send(SECRET_TOPIC, body, message_id=f"ID{self.sent}")
            assert sent.status.code == v2.OK, sent.status
            self.sent += 1
            got = await other.receive(SECRET_TOPIC, "canaries", poll_s=10, within_s=20.0)
            bodies = [each.body for each in got]
            assert bodies == [body], [
                (each.body, each.system_properties.delivery_attempt) for each in got
            ]
            assert (await other.ack(*got, group="canaries")).status.code == v2.OK

    async def rest(self) -> None:
        """Once all connections of before have ended."""
        async with asyncio.timeout(SETTLE_S):
            while self._left_over():  # noqa: ASYNC110 - there is no event for all of it
                await asyncio.sleep(0.05)

    def _left_over(self) -> str:
        node = self.node
        numbers = node._door.rocketmq[GRPC]()
        counts = {
            "connections": numbers.connections,
            "clients with a stream": numbers.clients,
            "waiting requests": numbers.parked,
            "bytes of answers": node._turns.held_bytes,
            "calls": node._door.calls,
            "waiting receives": node.work.numbers().waiting,
            "tasks": max(0, len(asyncio.all_tasks()) - self._tasks),
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)

    async def verify(self) -> None:
        """Stop, look at the store, and start again."""
        config = self.node.store.config
        # an acknowledgement is in the log a moment after its answer
        await self.node.work.sync("canaries")
        await self.node.stop()
        report = await asyncio.to_thread(verify, config)
        assert report.finished
        assert report.faults == [], report.faults[:3]
        self.node = await _started(self.folder, self.situation)
        await self.check()
        async with self._other() as other:
            got: list[bytes] = []
            while len(got) < self.sent:
                some = await other.receive(SECRET_TOPIC, "from-the-beginning", within_s=20.0)
                assert some, f"{len(got)} of {self.sent} messages are there"
                got += [each.body for each in some]
        assert sorted(got) == sorted(b"%s %d" % (SECRET, each) for each in range(self.sent))

    @property
    def _endpoint(self) -> str:
        return self.node.endpoints.rocketmq_grpc

    @asynccontextmanager
    async def _other(self) -> AsyncIterator[MessagingClient]:
        headers = {name.replace("-", "_"): value for name, value in _signed(ADMIN_KEY).items()}
        async with aio.insecure_channel(self._endpoint, options=_OPTIONS) as channel:
            yield MessagingClient(channel, "another", **headers)


def trial_of(row: dict[str, Any]) -> MessagingTrial:
    """A row of the corpus."""
    return MessagingTrial(
        row["name"],
        tuple(unpack(each) for each in row["messages"]),
        tuple((name, value) for name, value in row["headers"]),
        row["leaves"],
    )


def _signed(key: str) -> dict[str, str]:
    signature = signature_of(PASSWORD, DATE)
    return {
        "x-mq-date-time": DATE,
        "authorization": (
            f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
        ),
    }


def _sentence_fault(status: v2.Status) -> str:
    text = status.message
    if status.code == v2.OK:
        return ""
    if not text.strip():
        return f"refused with {status.code} and no sentence"
    if status.code == v2.INTERNAL_SERVER_ERROR or any(each in text for each in NEVER):
        return text[:200]
    return f"a sentence of {len(text)} characters" if len(text) > MOST_REMARK else ""


def _status_fault(
    trial: MessagingTrial, code: grpc.StatusCode, details: str, encoded: Sequence[bytes]
) -> str:
    if code is grpc.StatusCode.OK:
        return "" if encoded or trial.name == "Telemetry" else f"{trial.name} has no answer"
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details
    marked = code is grpc.StatusCode.FAILED_PRECONDITION and HANDED_ON in dict(trial.headers)
    if too_large or marked or details == OWN_FAULT:
        return ""
    return f"{trial.name}: {code.name} {details[:200]}"


async def _started(folder: Path, situation: str) -> Node:
    access = ""
    if situation == RIGHTS:
        path = folder / "access.toml"
        await asyncio.to_thread(path.write_text, ACCESS)
        access = str(path)
    node = Node(
        NodeConfig(
            listen="127.0.0.1:0",
            http_listen="",
            store=StoreSection(directory=folder / "store", **SMALL, max_message_size=100_000),
            rocketmq_clients=DOOR,
            security=SecuritySection(access_file=access),
        )
    )
    await node.start()
    return node
