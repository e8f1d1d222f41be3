"""What clients of a world were told, and whether it holds.

put       told stored: once in the log of every later leader. Told "not stored": in none
read      who reads from the begin gets all that the last leader holds; who began at the end,
          all that was acknowledged after that
answer    what is said of offsets and producers was true when the question came: never by a
          node of an epoch below one in which something newer was acknowledged
places    where a group was told to begin in a queue, each later leader has an offset of it
members   keep their queues while nothing but the coordinator is away
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.ha_nodes import ViolationError
from sim.served_clients import SESSION_S, Reader, put_batch
from sim.served_node import Service
from sim.served_store import TOPIC, Queue, ServedStore
from tandemlog.consume.reading.positions import EARLIEST
from tandemlog.errors import InternalError, OutcomeUnknownError, TandemlogError
from tandemlog.produce.put_batch import CallbackSink
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.error_status import FOR_EVER

if TYPE_CHECKING:
    from sim.election_nodes import ElectedNode
    from sim.served_world import ServedNode, ServedWorld

CLEAR_S = 10.0
"""After the last trouble, before anything counts as begun."""
PATIENCE_S = SESSION_S + 3.0


class Promises:
    """See the module."""

    def __init__(self, world: "ServedWorld") -> None:
        self.world = world
        self.stored: dict[bytes, float] = {}
        self.not_stored: set[bytes] = set()
        self.read: dict[str, set[bytes]] = {}
        # (reader or group, queue) -> since when all that is stored there is its
        self.began: dict[tuple[str, Queue], float] = {}
        self.holds: dict[tuple[str, Queue], tuple[str, float]] = {}
        # queues of groups in which a commit was acknowledged, if that waits for the set
        self.places: set[tuple[str, Queue]] = set()
        # the newest epoch in which something of a kind was acknowledged
        self.newest: Counter[str] = Counter()

    # --- producers

    def told_stored(self, body: bytes) -> None:
        self.stored[body] = self.world.now
        self.world.count("told stored")

    def told_failed(self, body: bytes, error: TandemlogError) -> None:
        self.world.note(f"{body.decode()} failed: {error}")
        if isinstance(error, InternalError):
            raise ViolationError(f"{body.decode()}: {error}")
        if isinstance(error, OutcomeUnknownError):
            self.world.count("told unknown")
        else:
            self.world.count("told not stored")
            self.not_stored.add(body)

    def acknowledged(self, node: "ServedNode") -> None:
        self.newest["puts"] = max(self.newest["puts"], node.leads)

    def check_leader(self, node: "ElectedNode", store: ServedStore) -> None:
        if self.world.unclean_epoch:
            return  # a history that was given up may have held more, or less
        found = Counter(row.body for row in store.derived.rows)
        twice = sorted(body.decode() for body, count in found.items() if count > 1)
        if twice:
            raise ViolationError(f"{node.name} leads, and holds twice: {twice[:5]}")
        wrong = sorted(self.not_stored & found.keys())
        if wrong:
            raise ViolationError(f"said not to be stored, and is: {wrong[:5]}")
        lost = sorted(self.stored.keys() - found.keys())
        if lost:
            raise ViolationError(f"{node.name} leads, and lacks: {lost[:5]}")
        offset = store.consumer_offsets.offset
        nowhere = sorted(
            f"{group} in {queue[0]}/{queue[1]}"
            for group, queue in self.places
            if offset(group, *queue) is None
        )
        if nowhere:
            raise ViolationError(f"{node.name} leads, and has no offset of {nowhere}")

    # --- readers

    def name(self, reader: Reader) -> str:
        """Whose the messages are."""
        return reader.group or reader.name

    def assigned(self, reader: Reader, queues: list[Queue]) -> None:
        for queue in queues:
            key = self.name(reader), queue
            if reader.start == EARLIEST:
                self.began.setdefault(key, float("-inf"))
            self.holds[key] = reader.name, self.world.now

    def gone(self, reader: Reader) -> None:
        for key, (holder, _) in list(self.holds.items()):
            if holder == reader.name:
                del self.holds[key]

    def look(self) -> None:
        """What begins at the end has begun once nothing has gone wrong for a while."""
        now = self.world.now
        for key, (_, since) in self.holds.items():
            if now - since >= CLEAR_S and now - self.world.unwell_at >= CLEAR_S:
                self.began.setdefault(key, now)

    def lost_queues(self, reader: Reader, queues: list[Queue]) -> None:
        self.world.note(f"{reader.name} loses {queues}")
        self.world.count("queues lost")
        for queue in queues:
            self.holds.pop((self.name(reader), queue), None)
        well_s = self.world.now - self.world.unwell_at
        if well_s > PATIENCE_S:
            raise ViolationError(
                f"{reader.name} loses {queues}, and for {well_s:.1f} s nothing was away but the "
                "coordinator"
            )

    def delivered(self, reader: Reader, queue: Queue, queue_offset: int, body: bytes) -> None:
        self.read.setdefault(self.name(reader), set()).add(body)
        self.world.count("delivered")

    def failed(self, reader: Reader, error: Exception) -> None:
        raise ViolationError(f"{reader.name} ends: {error!r}")

    def unread(self, store: ServedStore) -> dict[str, list[str]]:
        """What the last leader holds, and who has not got it."""
        found: dict[str, list[str]] = {}
        for (name, queue), since in self.began.items():
            read = self.read.get(name, set())
            for row in store.derived.queues.get(queue, ()):
                if row.body not in read and self.stored.get(row.body, float("-inf")) >= since:
                    found.setdefault(name, []).append(f"{queue[1]}/{row.queue_offset}")
        return found

    def check_read(self, store: ServedStore) -> None:
        missing = self.unread(store)
        if missing:
            raise ViolationError(f"not delivered: { {k: v[:8] for k, v in missing.items()} }")

    # --- what only the master can say

    def answering(self, node: "ServedNode", method: str, request: Any) -> Callable[[Any], None]:
        if method == "CommitOffsets":
            return lambda answer: self._committed(node, request, answer)
        if method in ("FetchOffsets", "DescribeProducer"):
            kind = "puts" if method == "DescribeProducer" else f"offsets of {request.group}"
            then = self.newest[kind]
            return lambda answer: self._said(node, method, then, answer)
        if method == "Append":
            before = self.newest["puts"]
            return lambda answer: self._refused(node, before, answer)
        return lambda answer: None

    def is_old(self, node: "ServedNode", then: int) -> bool:
        """Whether it speaks for an epoch below that in which something was acknowledged."""
        return node.leads < then

    def _refused(self, node: "ServedNode", then: int, answer: Any) -> None:
        """Of a put: what a producer acts on for ever."""
        if answer.error.code in FOR_EVER and self.is_old(node, then):
            raise ViolationError(
                f"{node.name} says {answer.error.message!r} as the master of epoch {node.leads}; "
                f"in epoch {then} something was acknowledged before it was asked"
            )

    def _committed(self, node: "ServedNode", request: Any, answer: Any) -> None:
        if not answer.error.code:
            kind = f"offsets of {request.group}"
            self.newest[kind] = max(self.newest[kind], node.leads)
            self.world.count("commits")
            if self.world.mode.waits:
                rows = request.offsets
                self.places.update((request.group, (each.topic, each.queue_id)) for each in rows)

    def _said(self, node: "ServedNode", method: str, then: int, answer: Any) -> None:
        self.world.count("refused to say" if answer.error.code else "said")
        if not answer.error.code and self.is_old(node, then):
            raise ViolationError(
                f"{node.name} answers {method} as the master of epoch {node.leads}; in epoch "
                f"{then} something was acknowledged before it was asked"
            )

    def ask(self) -> None:
        """Somebody asks a node that calls itself master."""
        leading = [each for each in self.world.elected if each.master and self.world.awake(each)]
        if not leading:
            return
        service = self.world.service_of(self.world.rng.choice(leading))
        kind = self.world.rng.randrange(3)
        if kind == 0:
            request: Any = broker_pb2.FetchOffsetsRequest(group="g", topics=[TOPIC])
            service.loop.begin(service.answer("FetchOffsets", request))
        elif kind == 1:
            request = broker_pb2.DescribeProducerRequest(producer_id="p0")
            service.loop.begin(service.answer("DescribeProducer", request))
        else:
            service.loop.begin(self._send_a_gap(service))

    async def _send_a_gap(self, service: Service) -> None:
        """A request of a producer that skips one, as it is after an answer that was lost."""
        batch = put_batch(b"a gap", 0, CallbackSink(lambda _: None, lambda _: None), 0.0)
        batch.sequence = 1 << 30
        told, stream = service.answering("Append", None), service.open_stream()
        service.pump.submit(stream, b"".join(batch.encoded("p0", 0)))
        stream.end()
        async for response in stream.responses():
            told(response)
        service.pump.close_stream(stream)
