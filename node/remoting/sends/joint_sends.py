"""Sends of all connections: those that come while the log is busy are appended together.

    A          ──▶ the log is idle          ──▶ JointPut, at the end of the loop's next turn
    B  C  D    ──▶ A is being appended      ──▶ JointPut, when A is in the log
    E          ──▶ this master cannot yet   ──▶ parked, again after PARK_STEP_S
    F          ──▶ no longer the master     ──▶ refused: the door hands them on

An append costs nearly the same for one message and for a hundred. So there is one append under way
at a time, and the more messages come, the less one costs: none waits longer than for the append
that it would have stood behind. Sends of MOST_JOINT_BYTES are not kept back. The loop looks once
more at its connections before an append begins: what they brought while A was read goes with A.

A client of RocketMQ that hears "busy" tries three times within milliseconds, and then gives up; its
own patience is three seconds. So a master that waits for its slaves, or for its lease, keeps a send
for PARK_S and only then refuses it. Later sends stay behind those that are parked, in the order in
which they came. What may be parked is bounded in bytes.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from tandemlog.v1 import common_pb2

from ...error_status import RequestRefusedError
from ...puts.joint_put import JointPut, Send
from ...puts.put_pump import PutPump
from ...roles.role import CurrentRole

PARK_S: Final = 2.5
"""A client gives up after 3 s by default."""
PARK_STEP_S: Final = 0.01
MOST_JOINT_BYTES: Final = 1 << 20
MOST_JOINT_REQUESTS: Final = 1024
_PARKED_FOR: Final = frozenset({common_pb2.NOT_IN_SYNC, common_pb2.BUSY})


class JointSends:
    """See the module; belongs to the loop."""

    def __init__(
        self,
        pump: PutPump,
        current: CurrentRole,
        *,
        timeout_s: float,
        most_parked_bytes: int,
        park_s: float = PARK_S,
    ) -> None:
        self._pump = pump
        self._current = current
        self._timeout_s = timeout_s
        self._most_parked_bytes = most_parked_bytes
        self._park_s = park_s
        self._loop = asyncio.get_running_loop()
        self._coming: list[Send] = []
        self._coming_bytes = 0
        self._scheduled = False
        self._appending = False
        self._parked: deque[Send] = deque()
        self._parked_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def parked(self) -> int:
        """Requests that wait until this master may take puts."""
        return len(self._parked)

    def add(self, send: Send) -> None:
        """Append it with the others that come now; it is told what became of it."""
        self._coming.append(send)
        self._coming_bytes += send.byte_size
        if not self._scheduled and (not self._appending or self._is_full()):
            self._scheduled = True
            self._loop.call_soon(self._loop.call_soon, self._end_turn)  # in the next turn

    def close(self) -> None:
        """Refuse what is parked: the node stops. What was kept back is appended."""
        if self._appending:
            self._end_turn()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._refuse(self._parked, _stopping())
        self._parked.clear()
        self._parked_bytes = 0

    def _is_full(self) -> bool:
        return self._coming_bytes >= MOST_JOINT_BYTES or len(self._coming) >= MOST_JOINT_REQUESTS

    def _appended(self) -> None:
        self._appending = False
        if self._coming and not self._scheduled:
            self._end_turn()

    def _end_turn(self) -> None:
        self._scheduled = False
        sends, self._coming, self._coming_bytes = self._coming, [], 0
        if self._closed:
            self._refuse(sends, _stopping())
        elif self._parked:
            self._park(sends, None)
        else:
            self._put(sends)

    def _put(self, sends: Sequence[Send]) -> None:
        groups: dict[tuple[str, int], list[Send]] = {}
        for send in sends:
            groups.setdefault((send.share, send.durability), []).append(send)
        for group in groups.values():
            for some in _cut(group):
                self._put_together(some)

    def _put_together(self, sends: Sequence[Send]) -> None:
        put = JointPut(sends, self._current, self._pump.stats, self._timeout_s)
        try:
            self._pump.admit(put.byte_size, put.durability)
        except RequestRefusedError as refusal:
            if refusal.code in _PARKED_FOR:
                self._park(sends, refusal)
            else:
                self._refuse(sends, refusal)
            return
        self._pump.enqueue(put)
        if not self._appending:
            self._appending = True
            self._pump.after_appends(self._appended)

    # ---- parking

    def _park(self, sends: Iterable[Send], reason: RequestRefusedError | None) -> None:
        """Keep them; those whose time is over are refused for `reason`, None if there is none."""
        now = self._loop.time()
        for send in sends:
            if send.is_unwanted():
                continue
            if reason is not None and now >= send.received_at + self._park_s:
                send.refuse(reason)
            elif self._parked_bytes + send.byte_size > self._most_parked_bytes and self._parked:
                send.refuse(self._full(send))
            else:
                self._parked.append(send)
                self._parked_bytes += send.byte_size
        if self._parked and self._timer is None:
            self._timer = self._loop.call_later(PARK_STEP_S, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        sends, self._parked, self._parked_bytes = list(self._parked), deque(), 0
        self._put([send for send in sends if not send.is_unwanted()])

    def _full(self, send: Send) -> RequestRefusedError:
        return RequestRefusedError(
            common_pb2.BUSY,
            f"{self._parked_bytes} bytes of sends wait until this master may take them, and this "
            f"one has {send.byte_size}; the limit is {self._most_parked_bytes}, "
            "put.max_pending_bytes",
            limit=self._most_parked_bytes,
            actual=self._parked_bytes + send.byte_size,
        )

    @staticmethod
    def _refuse(sends: Iterable[Send], problem: RequestRefusedError) -> None:
        for send in sends:
            send.refuse(problem)


def _cut(sends: Sequence[Send]) -> Iterable[Sequence[Send]]:
    """In pieces of a size that the log takes at once."""
    total = sum([send.byte_size for send in sends])
    if total <= MOST_JOINT_BYTES and len(sends) <= MOST_JOINT_REQUESTS:
        return [sends]
    pieces: list[list[Send]] = [[]]
    size = 0
    for send in sends:
        full = size + send.byte_size > MOST_JOINT_BYTES
        if pieces[-1] and (full or len(pieces[-1]) >= MOST_JOINT_REQUESTS):
            pieces.append([])
            size = 0
        pieces[-1].append(send)
        size += send.byte_size
    return pieces


def _stopping() -> RequestRefusedError:
    return RequestRefusedError(common_pb2.SHUTTING_DOWN, "the node is stopping")
