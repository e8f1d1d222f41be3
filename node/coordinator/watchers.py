"""The watches of one stream, each a position in the history. Pure.

    durable revision ──────────────▼
    history   … 7  8  9  10  11  12  13
                      ▲ next
    due: the events of `next`..durable in the watch's range, in messages of whole revisions

Nothing is queued for a watch that is not read: it falls behind, and if the history before `next` is
compacted meanwhile it is cancelled with the revision of the compaction. What is not durable is not
told.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tandemlog.v1 import coordinator_pb2 as pb

from .machine import Machine, key_value
from .refusals import RefusedError, full, no_key, not_supported
from .versions import Row, in_range

MESSAGE_BYTES = 1 << 20
"""A message ends with the revision that goes above it."""
NO_WATCH = -1


@dataclass(slots=True)
class Watcher:
    """One watch. `next` is the first revision that it has not been told."""

    watch_id: int
    request: pb.WatchCreateRequest
    next: int

    def wants(self, row: Row) -> bool:
        unwanted = pb.WatchCreateRequest.NODELETE if row.deleted else pb.WatchCreateRequest.NOPUT
        return unwanted not in self.request.filters and in_range(
            row.key, self.request.key, self.request.range_end
        )


class WatchCount:
    """How many watches the coordinator has, of all streams."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0


class Watchers:
    """See the module. `close` when the stream has ended."""

    def __init__(self, machine: Machine, count: WatchCount) -> None:
        self._machine = machine
        self._count = count
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

    def due(self, durable: int) -> Iterator[pb.WatchResponse]:
        """Messages up to `durable`; the position of a watch moves as they are taken."""
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

    def close(self) -> None:
        """Give back what the stream's watches count."""
        self._count.count -= len(self._watchers)
        self._watchers.clear()

    def _created(self, create: pb.WatchCreateRequest, durable: int) -> Watcher:
        if not create.key:
            raise no_key()
        if create.progress_notify:
            raise not_supported("progress_notify; ask for the progress")
        if self._count.count >= self._count.limit:
            raise full("watches", self._count.count, self._count.limit)
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
        self._count.count += 1
        return watcher

    def _drop(self, watch_id: int) -> bool:
        dropped = self._watchers.pop(watch_id, None) is not None
        self._count.count -= dropped
        return dropped

    def _events(self, watcher: Watcher, durable: int) -> list[pb.Event]:
        """Of whole revisions; moves the watch behind them."""
        events: list[pb.Event] = []
        size = 0
        for row in self._machine.versions.events(watcher.next, durable):
            if size >= MESSAGE_BYTES and row.revision >= watcher.next:
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
