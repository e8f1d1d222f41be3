"""One slave's connection: a socket and the log around a SlaveSession.

    socket ──▶ session ──▶ the group, if the slave counts
    wake: the log has grown, what is confirmed moved, an acknowledgement came, a tick ──▶ send

The loop sleeps until there is something to send. Log bytes are copied once, from the mapped file
into a batch of frames; while a batch is on its way the next one is made. What is not in memory is
read in a thread, so that no other slave waits for this one's disk reads.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.errors import HaError, ProtocolError
from tandemlog_server.ha.master.foreign_slaves import foreign_hello
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.ha.protocol.frames import Ack, Hello
from tandemlog_server.storage.errors import StoreError

from ..wire.frames import OffsetReader, encode_header
from .framing import Cut, Place, begins_at, cut, large_record_at
from .refused_brokers import RefusedBrokers
from .session import BATCH_BYTES, SendHeartbeat, SendLog, SlaveSession

if TYPE_CHECKING:
    from tandemlog_server.ha.master.session import MasterSession

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 << 10
BUFFERED_BYTES: Final = 2 * BATCH_BYTES
INCARNATION: Final = "rocketmq"
"""Of every slave broker that counts: the wire does not tell one disk from another."""
PROGRAM: Final = "RocketMQ"
CATCHING_UP: Final = "catching-up"
FOLLOWING: Final = "following"


def broker_id(address: str) -> str:
    """How a slave broker is called among the nodes."""
    return f"rocketmq:{address}"


class SlaveStream:
    """See the module. `serve` ends with the connection; `counts`: its acknowledgements do."""

    def __init__(
        self,
        master: ReplicationMaster,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        node_id: str,
        address: str,
        counts: bool,
        sent_to: dict[str, int],
        refused: RefusedBrokers,
        searching: asyncio.Lock,
    ) -> None:
        self.node_id = node_id
        self.counts = counts
        # address -> up to where it was sent the log in this term
        self._sent_to = sent_to
        self._refused = refused
        self._searching = searching
        self.wake = asyncio.Event()
        self._master = master
        self._log = master.store.log
        self._reader, self._writer = reader, writer
        self._offsets = OffsetReader()
        self.session = SlaveSession(address, self._log.file_size, master.clock.monotonic())
        self._member: MasterSession | None = None
        self._refusing = False
        writer.transport.set_write_buffer_limits(high=BUFFERED_BYTES)

    async def serve(self) -> None:
        """Until the session is closed or the connection is. Raises nothing."""
        receiving = asyncio.create_task(self._receive(), name="rocketmq-acks")
        try:
            await self._send()
        except (StoreError, HaError) as error:
            self.session.fault = True
            self.close(f"{self.session.address}: {error}")
        except OSError as error:
            self.close(f"{self.session.address}: {error.strerror or error}")
        finally:
            if self._refusing:
                # it ends with the refusal, which must be durable before the slave comes again
                await asyncio.wait([receiving])
            self.close("this node is no longer the master")
            receiving.cancel()
            (ended,) = await asyncio.gather(receiving, return_exceptions=True)
            if isinstance(ended, Exception):
                logger.error("reading RocketMQ slave %s failed", self.node_id, exc_info=ended)

    def close(self, reason: str) -> None:
        """End the connection at once, also where it waits for a slave that does not read."""
        self.session.close(reason)
        if self._member is not None:
            self._master.group.closed(self._member, reason)
            self._member = None
        self._writer.transport.abort()
        self.wake.set()

    def tick(self, now: float) -> None:
        self.session.tick(now)
        if self.session.closed:
            self.close(self.session.closed_reason)
        self.wake.set()

    def row(self, now: float) -> common_pb2.NodeStatus:
        """This slave in the list of nodes, where it does not count."""
        session, store = self.session, self._master.store
        lag = max(0, store.confirmed.value - session.acked)
        return common_pb2.NodeStatus(
            node_id=self.node_id,
            role=common_pb2.SLAVE,
            state=CATCHING_UP if lag else FOLLOWING,
            detail="a RocketMQ broker, whose acknowledgements do not count",
            epoch=self._master.group.view.epoch,
            wrote_offset=session.acked,
            lag_bytes=lag,
            lag_seconds=now - session.caught_up_at if lag else 0.0,
            version=PROGRAM,
        )

    # --- receiving

    async def _receive(self) -> None:
        session, address = self.session, self.session.address
        try:
            while data := await self._reader.read(READ_BYTES):
                offsets = self._offsets.feed(data)
                if offsets and not session.streaming:
                    await self._greet(offsets.pop(0))
                if offsets and not session.closed:
                    self._acknowledge(max(offsets))
                self.wake.set()
                if session.closed:
                    break
            self.close(session.closed_reason or f"{address}: the slave closed the connection")
        except (StoreError, ProtocolError) as error:
            session.fault = True
            self.close(f"{address}: {error}")
        except OSError as error:
            self.close(f"{address}: {error.strerror or error}")

    async def _greet(self, offset: int) -> None:
        session, clock, log = self.session, self._master.clock, self._log
        begin, end = log.min_offset, log.committed.value
        most = max(self._master.group.epoch_start, self._sent_to.get(session.address, 0))
        if not offset:
            await self._master.short_read(partial(self._refused.forget, session.address))
        refused = self._refused.end_of(session.address)
        start = session.greet(offset, begin, end, clock.monotonic(), most=most, refused=refused)
        if start is None:
            if refused is not None or offset > min(most, end):
                await self._refuse(offset, sure=offset > max(most, *self._sent_to.values(), 0))
            return
        place: Place | None = Place(start)
        begins = await self._master.short_read(partial(begins_at, log, start))
        if not begins and not session.closed:
            async with self._searching:  # reads much of a log file: one after the other
                if not session.closed:
                    place = await self._master.long_read(partial(large_record_at, log, start))
        session.start(place, start, clock.monotonic())
        if session.closed:
            return
        if self.counts:
            self._join(start)
            # what it holds of its own log, none of it if it is empty
            self._acknowledge(offset)
        logger.info(
            "RocketMQ slave %s: sending from %d, the log ends at %d%s",
            self.node_id, start, end, "; it counts" if self.counts else "",
        )  # fmt: skip

    async def _refuse(self, offset: int, *, sure: bool) -> None:
        """Its log is another one. If it counts, puts wait for an operator. `sure`: it was not sent
        this log in the present term under another address; then the refusal is kept in the file."""
        session = self.session
        self._refusing = True
        if self.counts:
            self._master.group.alarm_foreign(self._hello(offset), session.closed_reason)
        if sure:
            await self._master.short_read(partial(self._refused.note, session.address, offset))

    def _hello(self, offset: int) -> Hello:
        group = self._master.group
        return foreign_hello(group.view.cluster_id, self.node_id, INCARNATION, offset, PROGRAM)

    def _join(self, start: int) -> None:
        now = self._master.clock.monotonic()
        self._member = self._master.group.attach_foreign(self._hello(start), start, now)
        if self._member is None:
            self.session.close(
                f"{self.session.address}: there is no room for one more node in the list"
            )

    def _acknowledge(self, offset: int) -> None:
        now = self._master.clock.monotonic()
        session, member = self.session, self._member
        session.acknowledge(offset, now)
        if member is None or session.closed:
            return
        group = self._master.group
        member.sent = session.sent
        whole = min(session.held, offset)
        group.receive(member, Ack(group.view.epoch, INCARNATION, whole, received=whole), now)
        if not member.streaming:
            self.session.close(f"{session.address}: {member.closed_reason}")
        self._master.confirm_changed()

    # --- sending

    def _limit(self) -> int:
        """Up to where this slave may have the log: without epochs it could not cut what a failover
        discards, so a slave that does not count gets only what is confirmed."""
        committed = self._log.committed.value
        return committed if self.counts else min(committed, self._master.store.confirmed.value)

    async def _send(self) -> None:
        session, clock = self.session, self._master.clock
        while True:
            self.wake.clear()
            if self._member is not None and not self._member.streaming:
                session.close(f"{session.address}: {self._member.closed_reason}")
            action = session.next(self._limit(), self._log.min_offset, clock.monotonic())
            if session.closed:
                return
            if action is None:
                await self.wake.wait()
            elif isinstance(action, SendHeartbeat):
                await self._write(encode_header(action.offset, 0))
            else:
                await self._send_log(action)

    async def _send_log(self, action: SendLog) -> None:
        """A slave that is far behind reads what only the disk has: not in the loop, where all
        others would wait with it."""
        if self._log.in_memory(action.offset, action.length):
            frames, batch = self._batch(action)
        else:
            frames, batch = await self._master.short_read(partial(self._batch, action))
        self.session.sent_frames(frames, self._master.clock.monotonic())
        session = self.session
        self._sent_to[session.address] = max(self._sent_to.get(session.address, 0), session.sent)
        if self._member is not None:
            # before a byte leaves: its acknowledgement may come back at once
            self._member.sent = self.session.sent
        await self._write(batch)

    def _batch(self, action: SendLog) -> tuple[Cut, bytes]:
        data = memoryview(self._log.read(action.offset, action.length))
        if len(data) != action.length:
            raise HaError(
                f"only {len(data)} of {action.length} bytes of the log could be read at "
                f"{action.offset}"
            )
        frames = cut(data, action.offset, self.session.place)
        parts: list[bytes | memoryview] = []
        begin = action.offset
        for end in frames.ends:
            parts.append(encode_header(begin, end - begin))
            parts.append(data[begin - action.offset : end - action.offset])
            begin = end
        return frames, b"".join(parts)

    async def _write(self, data: bytes) -> None:
        if self.session.closed or not data:
            return
        self._writer.write(data)
        await self._writer.drain()
