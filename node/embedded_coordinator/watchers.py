"""The watches of one stream, each a position in the history. Pure.

    durable revision ──────────────▼
    history   … 7  8  9  10  11  12  13
                      ▲ next
    due: the events of `next`..durable in the watch's range, in messages of whole revisions

Nothing is queued for a watch that is not read: it falls behind, and if the history before `next` is
compacted meanwhile it is cancelled with the revision of the compaction. Only durable changes are
reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.storage.shares import Shares

from .coordinator_refusals import RefusedError, full
from .key_versions import Row, in_range
from .request_checks import check_watch
from .state_machine import StateMachine, key_value

MESSAGE_BYTES = 1 << 20
"""A message ends with the revision that goes above it."""
PIECE_ROWS = 512
"""How many rows of the history one watch goes through before others have their turn."""
NO_WATCH = -1


@dataclass(slots=True)
class Watcher:
    """One watch. `next` is the first revision that it has not reported."""

    watch_id: int
    request: pb.WatchCreateRequest
    next: int

    def wants(self, row: Row) -> bool:
        unwanted = pb.WatchCreateRequest.NODELETE if row.deleted else pb.WatchCreateRequest.NOPUT
        return unwanted not in self.request.filters and in_range(
            row.key, self.request.key, self.request.range_end
        )


class Watchers:
    """See the module. `close` when the stream has ended. `shares` count the watches of all streams,
    these for `holder`."""

    def __init__(self, machine: StateMachine, shares: Shares, holder: str = "") -> None:
        self._machine = machine
        self._shares = shares
        self._holder = holder
        self._watchers: dict[int, Watcher] = {}
        self._last_id = 0

    def handle(self, request: pb.WatchRequest, durable: int) -> pb.WatchResponse | None:
        """The answer to one request."""
        header = self._machine.header(durable)
        match request.WhichOneof("request_union"):
            case "create_request":
                create = request.create_request
                try:
                    watcher = self._created(create, durable)
                except RefusedError as refusal:
                    return pb.WatchResponse(
                        header=header,
                        watch_id=create.watch_id or NO_WATCH,
                        created=True,
                        canceled=True,
                        cancel_reason=str(refusal),
                    )
                return pb.WatchResponse(header=header, watch_id=watcher.watch_id, created=True)
            case "cancel_request":
                watch_id = request.cancel_request.watch_id
                if not self._drop(watch_id):
                    return None
                return pb.WatchResponse(header=header, watch_id=watch_id, canceled=True)
            case "progress_request":
                return pb.WatchResponse(header=header, watch_id=NO_WATCH)
            case _:
                return None

    def due(self, durable: int) -> Iterator[pb.WatchResponse | None]:
        """Messages up to `durable`; the position of a watch moves as they are taken. None after a
        piece of the history without an event for its watch: a moment for others."""
        for watcher in list(self._watchers.values()):
            while watcher.next <= durable and watcher.watch_id in self._watchers:
                compacted = self._machine.versions.compacted
                if watcher.next <= compacted:
                    self._drop(watcher.watch_id)
                    yield pb.WatchResponse(
                        header=self._machine.header(durable),
                        watch_id=watcher.watch_id,
                        canceled=True,
                        compact_revision=compacted,
                    )
                    break
                events = self._events(watcher, durable)
                if events:
                    yield pb.WatchResponse(
                        header=self._machine.header(durable),
                        watch_id=watcher.watch_id,
                        events=events,
                    )
                else:
                    yield None

    def close(self) -> None:
        """Give back what the stream's watches count."""
        self._shares.give_back(self._holder, len(self._watchers))
        self._watchers.clear()

    def _created(self, create: pb.WatchCreateRequest, durable: int) -> Watcher:
        check_watch(create)
        shares, holder = self._shares, self._holder
        if not shares.may_take(holder):
            raise full("watches of one caller", shares.of(holder) + 1, shares.most(holder))
        watch_id = create.watch_id
        if watch_id and watch_id in self._watchers:
            raise RefusedError(
                "INVALID_ARGUMENT", "etcdserver: mvcc: watcher duplicate ID provided"
            )
        if not watch_id:
            while self._last_id in self._watchers:
                self._last_id += 1
            watch_id = self._last_id
        watcher = Watcher(watch_id, create, create.start_revision or durable + 1)
        self._watchers[watch_id] = watcher
        shares.take(holder)
        return watcher

    def _drop(self, watch_id: int) -> bool:
        dropped = self._watchers.pop(watch_id, None) is not None
        if dropped:
            self._shares.give_back(self._holder)
        return dropped

    def _events(self, watcher: Watcher, durable: int) -> list[pb.Event]:
        """Of whole revisions, of a piece of the history; moves the watch behind them."""
        events: list[pb.Event] = []
        size = 0
        for number, row in enumerate(self._machine.versions.events(watcher.next, durable)):
            full_enough = size >= MESSAGE_BYTES or number >= PIECE_ROWS
            if full_enough and row.revision >= watcher.next:
                return events
            watcher.next = row.revision + 1
            if watcher.wants(row):
                events.append(self._event(watcher, row))
                size += row.size
        watcher.next = durable + 1
        return events

    def _event(self, watcher: Watcher, row: Row) -> pb.Event:
        if row.deleted:
            kv = pb.KeyValue(key=row.key, mod_revision=row.revision)
            event = pb.Event(type=pb.Event.DELETE, kv=kv)
        else:
            event = pb.Event(kv=key_value(row))
        before = self._machine.versions.before(row) if watcher.request.prev_kv else None
        if before is not None:
            event.prev_kv.CopyFrom(key_value(before))
        return event
