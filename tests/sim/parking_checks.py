"""What the world of parked sends was promised, and whether that is so.

    answered by a node    stored, confirmed, and in the log of whoever leads by then
    acknowledged          in the log of each later master, once
    twice in a log        only what a client has sent twice, where no rule finds the first copy
    read by a consumer    confirmed, and the same as in the log at the end
    kept by a node        within the bounds; answered, or the connection closed, within the time

Two copies of one call are no fault where each is an attempt of the client of its own, and

    within a term     both came to the same master: RocketMQ stores both as well
    late              the term was older than WINDOW_S, or births lie further apart than ATTEMPTS_MS
    a third one       another attempt in that term may have been answered with the first copy
    overtaken         the copy that is stored first was born last

A copy is one request: never are two stored with the same key, time of birth and queue.
"""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from sim.parking_clients import REST_S, Call, Consumer
from sim.store_ledger import records_of
from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.node.remoting.sends.open_send import OpenSend
from tandemlog_server.node.remoting.sends.second_attempts import ATTEMPTS_MS, WINDOW_S
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import SENDS
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

if TYPE_CHECKING:
    from sim.parking_node import Node
    from sim.parking_world import World

LATE_S = 0.1
"""A node that runs looks so often."""
PARK_S = 2.5
"""Of sends, and of requests for the master: a client waits for 3 s."""
PUT_S = 5.0
ANSWER_S = 30.0
PARKED_PULL_S = 15.0


class Checks:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.calls: dict[str, Call] = {}
        self.begun_ms: dict[int, int] = {}
        self.doubles: Counter[str] = Counter()

    # ---- of clients

    def begun(self, call: Call) -> None:
        self.calls[call.key] = call

    def done(self, call: Call) -> None:
        world = self.world
        world.seen["acknowledged" if call.ended == "acknowledged" else "failed"] += 1
        if call.ended == "acknowledged":
            return
        world.say(f"{call.key} fails after {call.took:.2f} s: {call.ended}")
        if world.quiet_since is None or call.began < world.quiet_since or world.is_narrow:
            return
        if all(each.host != world.gone for each in call.attempts):
            world.fail(f"{call.key} fails although all is well: {call.ended}; {call.attempts}")

    def pull_failed(self, host: str, queue: int, problem: Exception) -> None:
        world = self.world
        world.seen["failed pulls"] += 1
        world.say(f"a pull of queue {queue} from {host} fails: {problem!r}")
        if world.quiet_since is not None and world.now < world.quiet_since + REST_S:
            world.fail("a pull fails, and a node was only stopped as planned")

    def offset_read(self, committed: int, read: int) -> None:
        """A client has committed, and then asked another node."""
        self.world.seen["offsets"] += 1
        if committed != read:
            self.world.fail(f"the offset that was committed is {committed}, not {read}")

    def moved(self, consumer: Consumer, queue: int, answer: Command) -> None:
        self.world.seen["moved"] += 1

    # ---- of nodes, at any moment

    def answered(self, node: "Node", call: RemotingCall, response: Command) -> None:
        if response.code != ResponseCode.SUCCESS:
            return
        if call.request.code == RequestCode.PULL_MESSAGE:
            self._check_read(node, response.body)
        elif call.request.code in SENDS and node.leads:
            self._check_stored(node, call.request, int(response.fields["msgId"][-16:], 16))
            self.world.at_an_answer(node)

    def _check_read(self, node: "Node", body: bytes) -> None:
        at, confirmed = 0, node.store.confirmed.value
        while at < len(body):
            record = decode_record(body, at)
            at += record.size
            if record.physical_offset + record.size > confirmed:
                self.world.fail(
                    f"{node.host} gives {record.physical_offset}, and is confirmed up to "
                    f"{confirmed}"
                )

    def _check_stored(self, node: "Node", request: Command, offset: int) -> None:
        world, key = self.world, request.fields["i"].split("\x02")[0].split("\x01")[1]
        record = record_at(node.store, offset)
        if record is None or record.uniq_key != key:
            world.fail(f"{node.host} acknowledges {key} at {offset}, where it is not")
        elif offset + record.size > node.store.confirmed.value:
            world.fail(f"{node.host} acknowledges {key} at {offset}, which is not confirmed")
        leading = world.nodes[world.coordinator.record.leader]
        if leading is node:
            return
        world.seen["acknowledged after the term"] += 1
        found = record_at(leading.store, offset) if leading.up else record
        if found is None or found.uniq_key != key:
            world.fail(f"{node.host} acknowledges {key} at {offset}; {leading.host} leads")

    def elected(self, node: "Node") -> None:
        """The store has begun a term."""
        self.begun_ms[node.epoch] = self.world.clock.now_ms()
        self.world.seen["elected"] += 1
        self.world.say(f"{node.host} leads in {node.epoch} from {node.store.log.wrote.value}")
        self.check_log(node)

    def check_log(self, node: "Node") -> None:
        copies = self._copies(node.store)
        for call in self.calls.values():
            if call.place is None:
                continue
            found = [each.physical_offset for each in copies.get(call.key, [])]
            if call.place[0] not in found:
                self.world.fail(f"{node.host} leads without {call.key} of {call.place}: {found}")
        self.doubles = Counter()
        for key, records in copies.items():
            for first, second in pairwise(records):
                why = self._double(node.store, self.calls[key], first, second)
                self.doubles[why] += 1

    def _copies(self, store: MessageStore) -> dict[str, list[Record]]:
        copies = defaultdict(list)
        for record in records_of(store):
            copies[record.uniq_key or ""].append(record)
        return copies

    def _double(self, store: MessageStore, call: Call, first: Record, second: Record) -> str:
        """Why the second copy is no fault."""
        terms = store.epochs.table.entries
        term = max(each for each in terms if each.start_offset <= second.physical_offset)
        later_ms = second.born_timestamp - first.born_timestamp
        age_ms = second.store_timestamp - self.begun_ms[term.epoch]
        if not later_ms and first.queue_id == second.queue_id:
            why = ""
        elif first.physical_offset >= term.start_offset:
            why = "within a term"
        elif later_ms < 0:
            why = "overtaken"
        elif later_ms > ATTEMPTS_MS or age_ms > WINDOW_S * 1000:
            why = "late"
        elif len(call.attempts) > 2:
            why = "a third one"
        else:
            why = ""
        if not why:
            attempts = [(each.born, each.queue_id) for each in call.attempts]
            self.world.fail(
                f"{call.key} is stored twice: {_place(first)} and {_place(second)}, in the term "
                f"{term}, {age_ms} ms old; attempts {attempts}"
            )
        return why

    def check_bounds(self) -> None:
        """What nodes keep, and for how long."""
        world = self.world
        for node in world.nodes.values():
            if not node.up or node.frozen or world.now - node.thawed_at < LATE_S:
                continue
            forwarder, joint = node.forwarder, node.joint
            if forwarder._requests.held > world.parked_most:
                world.fail(f"{node.host} keeps {forwarder._requests.held} requests")
            most = max([each.byte_size for each in joint._parked], default=0)
            if joint._parked_bytes > max(world.parked_bytes, most):
                world.fail(f"{node.host} keeps {joint._parked_bytes} bytes of sends")
            world.seen["parked sends"] += joint.parked
            world.seen["parked requests"] += forwarder.parked
            for send in joint._parked:
                late = world.now - max(send.received_at + PARK_S, node.thawed_at)
                if late > LATE_S and isinstance(send, OpenSend) and not send.call.connection.closed:
                    world.fail(f"{node.host} keeps a send for {late:.2f} s too long")
            for began, until in forwarder.waits:
                if until > began + PARK_S or world.now - max(until, node.thawed_at) > LATE_S:
                    world.fail(f"{node.host} keeps a request for the master too long")
            for session in node.sessions:
                for call in session._open:
                    self._check_age(node, call)

    def _check_age(self, node: "Node", call: RemotingCall) -> None:
        code = call.request.code
        if code == RequestCode.PULL_MESSAGE:
            most = PARKED_PULL_S + LATE_S
        elif code in SENDS:
            most = PARK_S + ANSWER_S + 2 * PUT_S
        else:
            most = ANSWER_S + PARK_S
        began = max(call.received_at, node.thawed_at)
        if self.world.now - began > most + 1.0:
            self.world.fail(f"{node.host} has not answered {code} for {self.world.now - began:.1f}")

    # ---- at the end

    def check_end(self) -> None:
        """Everything is quiet."""
        world = self.world
        leading = world.nodes[world.coordinator.record.leader]
        logs = set()
        for node in world.nodes.values():
            end = node.store.log.wrote.value
            logs.add((end, bytes(b"".join(record_bytes(node.store)))))
            if node.store.confirmed.value != end or node.store.reputed.value != end:
                world.fail(f"{node.host} is confirmed up to {node.store.confirmed.value} of {end}")
            if node.forwarder._requests.held or node.joint.parked or node.forwarder.parked:
                world.fail(f"{node.host} still keeps requests")
            if node.calls.calls != sum(len(each._open) for each in node.sessions):
                world.fail(f"{node.host} counts {node.calls.calls} calls")
        if len(logs) > 1:
            world.fail("logs differ")
        self.check_log(leading)
        in_log = {record.physical_offset: record for record in records_of(leading.store)}
        for consumer in world.consumers:
            got = {each.physical_offset for held in consumer.read.values() for each in held}
            for held in consumer.read.values():
                for record in held:
                    there = in_log.get(record.physical_offset)
                    if there is None or there.uniq_key != record.uniq_key:
                        world.fail(f"{consumer.host} has read {_place(record)}: {there}")
            if missing := in_log.keys() - got:
                world.fail(f"{consumer.host} has not read {len(missing)} of {len(in_log)}")
        world.seen.update({f"doubled {why}": number for why, number in self.doubles.items()})


def _place(record: Record) -> str:
    return (
        f"{record.physical_offset} ({record.uniq_key}, born {record.born_timestamp}, "
        f"queue {record.queue_id})"
    )


def record_at(store: MessageStore, offset: int) -> Record | None:
    if offset >= store.log.wrote.value:
        return None
    try:
        return decode_record(bytes(store.log.read(offset, store.log.file_size)), 0)
    except Exception:
        return None


def record_bytes(store: MessageStore) -> list[bytes]:
    found, start = [], 0
    while start < store.log.wrote.value:
        piece = bytes(store.log.read(start, store.log.file_size))
        found.append(piece)
        start += len(piece)
    return found
