"""Connections between the processes of a world: bytes in order, late, cut off, or never.

    End.write ─▶ on its way, 0.2 ms and more ─▶ the other process's loop ─▶ data_received
                   │ partition: later, when it is over    │ stands still: when it goes on
                   └ cut: a part of it, then a reset

As with sockets: a process that stands still has its connections, and new ones begin with it; one
that is killed resets its own; one that is out of reach says nothing.
"""

import asyncio
import heapq
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from fakes.clock import FakeClock
from sim.world_loop import WorldLoop

Factory = Callable[[], asyncio.BaseProtocol]


class WorldClock(FakeClock):
    """Whose milliseconds are those of its seconds, however small the steps are."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int((self.monotonic() - 1000.0) * 1000)


class Process:
    """Whoever has connections. `accept` gives the protocol of one that begins here."""

    def __init__(self, network: "Network", host: str) -> None:
        self.network, self.host = network, host
        self.up, self.frozen = True, False
        self.loop = NetworkLoop(network, self)
        self.accept: Factory | None = None
        self.ends: dict[End, None] = {}

    def reset_connections(self) -> None:
        """The process is gone."""
        self.up = False
        for end in list(self.ends):
            end.vanish()


class NetworkLoop(WorldLoop):
    """The loop of a process, by which it reaches the others."""

    def __init__(self, network: "Network", process: Process) -> None:
        super().__init__(network.clock)
        self._network, self._process = network, process

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Factory,
        host: str,
        port: int,
        *,
        ssl: ssl.SSLContext | None = None,
    ) -> "tuple[End, Any]":
        network, own = self._network, self._process
        await asyncio.sleep(network.delay())
        while network.is_cut(own.host, host):  # noqa: ASYNC110 - in the world's time
            await asyncio.sleep(0.05)
        other = network.processes[host]
        if not other.up or other.accept is None:
            raise ConnectionRefusedError(f"{host}:{port} does not listen")
        protocol = protocol_factory()
        end, far = End(own, protocol), End(other, None)
        end.far, far.far = far, end
        cast("Any", protocol).connection_made(end)
        other.loop.call_soon(far.arrive)
        return end, protocol


class End(asyncio.Transport):
    """One side of a connection; the transport of its protocol."""

    far: "End"

    def __init__(self, process: Process, protocol: asyncio.BaseProtocol | None) -> None:
        super().__init__()
        self.process, self.protocol = process, protocol
        self.closing = self.ended = False
        self.coming: deque[tuple[float, bytes | str]] = deque()  # "end", "reset"
        self._paused = False
        process.ends[self] = None

    def __hash__(self) -> int:
        return id(self)

    # ---- as a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.process.network.address(self.far.process.host), 1
        if name == "sockname":
            return self.process.network.address(self.process.host), 1
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It never fills."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.process.network.look(self)

    def write(self, data: Any) -> None:
        if not self.closing and not self.ended:
            self._send(bytes(data))

    def close(self) -> None:
        self._close("end")

    def abort(self) -> None:
        self._close("reset")

    def _close(self, how: str) -> None:
        if self.closing or self.ended:
            return
        self.closing = True
        self._send(how)
        self.process.loop.call_soon(self._end, None)

    # ---- what comes

    def arrive(self) -> None:
        """The process takes a connection that began with it."""
        if self.process.accept is None or self.ended:
            self.vanish()
            return
        self.protocol = self.process.accept()
        cast("Any", self.protocol).connection_made(self)
        self.process.network.look(self)

    def _send(self, what: bytes | str) -> None:
        network, far = self.process.network, self.far
        last = far.coming[-1][0] if far.coming else 0.0
        far.coming.append((max(last, network.now + network.delay()), what))
        network.look(far)

    def take(self) -> None:
        """In the loop of its process: all that has come by now."""
        network = self.process.network
        while self.coming and not self._paused and self.protocol is not None and not self.ended:
            if network.is_cut(self.process.host, self.far.process.host):
                return
            if self.coming[0][0] > network.now:
                network.look(self)
                return
            _, what = self.coming.popleft()
            if isinstance(what, bytes):
                self._receive(what)
            elif what == "end":
                cast("Any", self.protocol).eof_received()
                self._end(None)
            else:
                self._end(ConnectionResetError("reset by its peer"))

    def _receive(self, data: bytes) -> None:
        protocol: Any = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data and not self.ended:
            room = memoryview(protocol.get_buffer(-1))
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            protocol.buffer_updated(len(part))

    def _end(self, why: Exception | None) -> None:
        if self.ended:
            return
        if not self.closing and why is None:
            self.closing = True
            self._send("end")
        self.closing = self.ended = True
        self.process.ends.pop(self, None)
        if self.protocol is not None:
            cast("Any", self.protocol).connection_lost(why)

    # ---- misfortune

    def vanish(self) -> None:
        """Its process is gone: what is on its way arrives, or a part of it."""
        self.ended = True
        self.process.ends.pop(self, None)
        if self.far.coming and self.process.network.chance.random() < 0.5:
            self.far.cut()
        else:
            self._send("reset")

    def cut(self) -> None:
        """Of what is on its way here a part arrives."""
        whole = b"".join(what for _, what in self.coming if isinstance(what, bytes))
        part = whole[: self.process.network.chance.randrange(len(whole) + 1)]
        now = self.process.network.now
        self.coming = deque([(now, part)] if part else [])
        self.coming.append((now, "reset"))
        self.process.network.look(self)


class Network:
    """See the module."""

    def __init__(self, clock: WorldClock, chance: Random) -> None:
        self.clock, self.chance = clock, chance
        self.processes: dict[str, Process] = {}
        self.slow = 0.0
        self.problem: Exception | None = None
        """What a check has found, wherever it was raised."""
        self._apart: set[frozenset[str]] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def address(self, host: str) -> str:
        return f"10.0.0.{sorted(self.processes).index(host) + 1}"

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, work))

    def delay(self) -> float:
        if self.chance.random() < self.slow:
            return self.chance.uniform(0.05, 1.0)
        return self.chance.uniform(0.0002, 0.004)

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._apart

    def part(self, one: str, others: list[str]) -> None:
        self._apart |= {frozenset((one, other)) for other in others}

    def join(self, one: str, others: list[str]) -> None:
        """Connections that lived through it say what they have to say."""
        self._apart -= {frozenset((one, other)) for other in others}
        for process in self.processes.values():
            for end in list(process.ends):
                self.look(end)

    def look(self, end: End) -> None:
        """Have it take what comes, when that has come."""
        if end.coming:
            self.after(max(end.coming[0][0] - self.now, 0.0), partial(self._wake, end))

    @staticmethod
    def _wake(end: End) -> None:
        if not end.ended and end.process.up:
            end.process.loop.call_soon(end.take)

    def run_until(self, until: float) -> None:
        """Everything that is due, in its order."""
        self._settle()
        while True:
            timers = [
                each.loop.next_timer
                for each in self.processes.values()
                if each.up and not each.frozen and each.loop._scheduled
            ]
            following = min([*timers, *([self._due[0][0]] if self._due else [])], default=until)
            if following > until:
                break
            self.clock.advance(max(following - self.now, 0.0))
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            self._settle()
        self.clock.advance(max(until - self.now, 0.0))

    def _settle(self) -> None:
        """Until nobody has anything left to do at this moment."""
        busy, now = True, self.now
        while busy:
            busy = False
            for process in list(self.processes.values()):
                loop = process.loop
                due = loop._ready or (loop._scheduled and loop._scheduled[0].when() <= now)
                if due and process.up and not process.frozen:
                    loop.run_ready()
                    busy = True
                if self.problem is not None:
                    raise self.problem
