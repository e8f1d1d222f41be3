"""A producer's chain against a log, with everything between them going wrong, seeded.

Streams break with requests and answers on the way; a broken stream's requests may still reach the
node, late; nodes refuse; topics disappear. However it went: no message is stored twice, those of
a queue stand in order, what was acknowledged is stored, and in the end nobody is left waiting.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from fakes.fake_log import FakeLog, RefusedError
from tandemlog.errors import OutcomeUnknownError, TandemlogError
from tandemlog.format.record.record import decode_record
from tandemlog.message import Message
from tandemlog.produce.chain import Chain, Numbers
from tandemlog.produce.framing import Framer
from tandemlog.produce.put_batch import OpenBatch
from tandemlog.put_answer import PutAnswer
from tandemlog.v1 import broker_pb2, common_pb2

PASSING = (common_pb2.BUSY, common_pb2.NOT_MASTER, common_pb2.NOT_IN_SYNC)


@dataclass
class Waiting:
    """The sink of a request: notes what became of each of its messages."""

    bodies: list[bytes]
    outcomes: dict[bytes, PutAnswer | TandemlogError]
    divisible: bool = True

    def acknowledged(self, answer: PutAnswer) -> None:
        for body in self.bodies:
            assert body not in self.outcomes
            self.outcomes[body] = answer

    def failed(self, error: TandemlogError) -> None:
        for body in self.bodies:
            assert body not in self.outcomes
            self.outcomes[body] = error

    def without(
        self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError
    ) -> "Waiting":
        Waiting([self.bodies[index] for index in dropped], self.outcomes).failed(error)
        return Waiting([self.bodies[index] for index in kept], self.outcomes)


@dataclass
class World:
    random: random.Random
    zombies: bool
    log: FakeLog = field(default_factory=FakeLog)
    outcomes: dict[bytes, PutAnswer | TandemlogError] = field(default_factory=dict)
    given: list[bytes] = field(default_factory=list)
    up: deque[broker_pb2.AppendRequest] = field(default_factory=deque)
    down: deque[broker_pb2.AppendResponse] = field(default_factory=deque)
    late: deque[broker_pb2.AppendRequest] = field(default_factory=deque)
    stream: bool = False
    now: float = 0.0

    def __post_init__(self) -> None:
        self.held = 0
        self.chain = Chain(Numbers("p"), self._release)
        self.framer = Framer(now_ms=lambda: 1)
        for topic in ("a", "b"):
            self.log.create_topic(topic, 2)

    def _release(self, size: int) -> None:
        self.held -= size

    def give(self) -> None:
        """A request of one to three messages, to both topics."""
        bodies: list[bytes] = []
        batch = OpenBatch(broker_pb2.CLUSTER, Waiting(bodies, self.outcomes), self.now)
        for _ in range(self.random.randint(1, 3)):
            body = b"%d" % len(self.given)
            self.given.append(body)
            bodies.append(body)
            topic, queue = self.random.choice("aab"), self.random.randrange(2)
            batch.add(self.framer.frame(Message(topic, body), queue), topic, queue)
        sealed = batch.seal(50.0)
        self.held += sealed.byte_size
        self.chain.add(sealed)

    def step(self, faults: bool) -> None:
        self.now += 0.5
        if not self.stream:
            self.chain.stream_opened()
            self.chain.numbers.agreed = True
            self.stream = True
            return
        choices = [self._write, self._serve, self._serve, self._receive, self._receive]
        if faults:
            choices += [self._break] if self.random.random() < 0.15 else []
            choices += [self._late] if self.late else []
        self.random.choice(choices)(faults)

    def _write(self, faults: bool) -> None:
        batch = self.chain.to_write()
        if batch is not None:
            encoded = b"".join(batch.encoded("p", 0))
            self.up.append(broker_pb2.AppendRequest.FromString(encoded))

    def _serve(self, faults: bool) -> None:
        if self.up:
            self.down.append(self._answer(self.up.popleft(), faults))

    def _answer(self, request: broker_pb2.AppendRequest, faults: bool) -> broker_pb2.AppendResponse:
        try:
            if faults and self.random.random() < 0.05:
                raise RefusedError(self.random.choice(PASSING))
            self._refuse_the_unwanted(request)
            answer = self.log.append(request)
        except RefusedError as refusal:
            return broker_pb2.AppendResponse(
                request_id=request.request_id,
                status=broker_pb2.MESSAGE_ILLEGAL,
                error=refusal.error,
            )
        if faults and self.random.random() < 0.05:
            return broker_pb2.AppendResponse(
                request_id=request.request_id, status=broker_pb2.FLUSH_SLAVE_TIMEOUT
            )
        return answer

    @staticmethod
    def _refuse_the_unwanted(request: broker_pb2.AppendRequest) -> None:
        """Some messages are refused for good, whenever they come."""
        position = 0
        for index, size in enumerate(np.frombuffer(request.sizes, "<u4").tolist()):
            record = decode_record(request.records, position, limit=position + size)
            if int(record.body) % 29 == 7:
                raise RefusedError(common_pb2.MESSAGE_TOO_LARGE, record_index=index)
            position += size

    def _receive(self, faults: bool) -> None:
        if self.down:
            try:
                self.chain.received(self.down.popleft(), "n0")
            except TandemlogError:
                self._break(faults)

    def _break(self, faults: bool) -> None:
        self.stream = False
        self.chain.stream_ended()
        if self.zombies:
            self.late.extend(self.up)
        self.up.clear()
        self.down.clear()

    def _late(self, faults: bool) -> None:
        """A node still works on what came over a stream that is long broken."""
        self._answer(self.late.popleft(), faults=False)

    def check(self) -> None:
        stored = [record.body for record in self.log.decoded()]
        assert len(stored) == len(set(stored)), "a message is stored twice"
        for topic in ("a", "b"):
            for queue in range(2):
                numbers = [int(body) for body in self.log.bodies(topic, queue)]
                assert numbers == sorted(numbers), "out of order"
        for body, outcome in self.outcomes.items():
            if isinstance(outcome, PutAnswer):
                assert body in stored
            elif not isinstance(outcome, OutcomeUnknownError):
                assert body not in stored, f"{outcome} but it is stored"

    def forget(self) -> None:
        """The node forgets its producers. Who begins is nobody that it could know: the first
        request is new to it in any case, and no client waits for its answer as long as that."""
        if all(batch.sequence is None or batch.sequence > 0 for batch in self.chain._batches):
            self.log.producers.clear()


def _run(seed: int, *, zombies: bool, expiry: bool, forgetful: bool = False) -> World:
    world = World(random.Random(seed), zombies)
    for _ in range(400):
        if world.random.random() < 0.1:
            world.give()
        world.step(faults=True)
        if forgetful and world.random.random() < 0.03:
            world.forget()
        if expiry and world.random.random() < 0.05:
            world.chain.expire(world.now, 50.0)
    world.late.clear()
    for _ in range(2000):
        if not len(world.chain):
            break
        world.step(faults=False)
    world.check()
    assert not len(world.chain)
    assert set(world.outcomes) == set(world.given), "somebody still waits"
    assert world.held == 0
    return world


@pytest.mark.parametrize("seed", range(25))
def test_every_message_once_and_in_order(seed: int) -> None:
    _run(seed, zombies=False, expiry=False)


@pytest.mark.parametrize("seed", range(25))
def test_requests_of_a_broken_stream_may_come_late(seed: int) -> None:
    _run(seed, zombies=True, expiry=False)


@pytest.mark.parametrize("seed", range(40))
def test_a_node_that_forgets_stores_nothing_twice(seed: int) -> None:
    _run(seed, zombies=False, expiry=bool(seed % 2), forgetful=True)


@pytest.mark.parametrize("seed", range(25))
def test_deadlines_let_nobody_wait_and_store_nothing_twice(seed: int) -> None:
    _run(seed, zombies=False, expiry=True)
