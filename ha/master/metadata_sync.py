"""Topics, groups and consumer offsets on their way to the slaves: whole tables, by version.

    table changes ──▶ its version differs ──▶ encoded once, in pieces ──▶ a cursor for every slave
                                                                     log, piece, log, piece ...

Tables travel beside the log, not in it, so a slave may for a moment know a topic before its first
message or after it. Both are harmless: queues come from the log alone, and a new master lowers the
consumer offsets to what its log holds. A caller that must know that a change is safe waits until
the slaves have acknowledged that version (waiters.py).

A table never delays the log: its pieces are sent one at a time between chunks, a table that takes
long to encode is encoded rarely, more often while a caller waits for it, and one that is too large
to send stays here, with a warning.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from tandemlog_server.storage.clock import Clock

from ..protocol.frames import encode_master_frame
from ..protocol.table_pieces import cut_up
from ..store_port import TablePort

logger = logging.getLogger(__name__)

REST = 20
"""A table is encoded at most this part of the time: encoding holds its lock."""
REST_IF_WANTED = 1
"""The same while a caller waits for it."""


class MetadataSource:
    """The newest pieces of every table. `refresh` in a worker thread, the rest in the loop."""

    def __init__(self, tables: Mapping[str, TablePort], clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        # replaced and never changed: the loop goes through it meanwhile
        self._frames: Mapping[str, tuple[int, Sequence[bytes]]] = {}
        # of the last encoding: when it ended, and how long it took
        self._encoded: dict[str, tuple[float, float]] = {}
        self.faults: dict[str, str] = {}

    def refresh(self, wanted: Collection[str] = ()) -> bool:
        """Encode the tables that have changed; whether one has. Callers wait for those that are
        `wanted`."""
        changed = False
        for kind, table in self._tables.items():
            # The version first: a change in between is then sent once more, never lost.
            version, began = table.version, self._clock.monotonic()
            encoded = self._frames.get(kind)
            current = encoded is not None and encoded[0] == version
            if current or self._rests(kind, began, wanted):
                continue
            changed |= self._encode(kind, version, table)
            ended = self._clock.monotonic()
            self._encoded[kind] = ended, ended - began
        return changed

    def _rests(self, kind: str, now: float, wanted: Collection[str]) -> bool:
        ended, took = self._encoded.get(kind, (now, 0.0))
        return now < ended + took * (REST_IF_WANTED if kind in wanted else REST)

    def _encode(self, kind: str, version: int, table: TablePort) -> bool:
        try:
            pieces = cut_up(kind, version, table.to_json())
        except ValueError as error:
            if kind not in self.faults:
                logger.error(
                    "a metadata table was not sent, slaves keep the one they have: %s", error
                )
            self.faults[kind] = str(error)
            return False
        self.faults.pop(kind, None)
        frames = [encode_master_frame(piece) for piece in pieces]
        self._frames = {**self._frames, kind: (version, frames)}
        return True

    def versions(self) -> dict[str, int]:
        """Of every table that can be sent now."""
        return {kind: version for kind, (version, _) in self._frames.items()}

    def newer(self, sent: Mapping[str, int]) -> tuple[str, int, Sequence[bytes]] | None:
        """A table of another version than `sent` has: kind, version, frames."""
        for kind, (version, frames) in self._frames.items():
            if sent.get(kind) != version:
                return kind, version, frames
        return None


class TableCursor:
    """What one slave has been sent. A table whose first piece was sent is sent to its end, whatever
    changes meanwhile: otherwise a table that changes often would never arrive."""

    def __init__(self, source: MetadataSource) -> None:
        self._source = source
        self._sent: dict[str, int] = {}
        self._frames: Sequence[bytes] = ()
        self._next = 0

    def frame(self) -> bytes | None:
        """The next frame to send; None if the slave has been sent everything."""
        if self._next == len(self._frames):
            newer = self._source.newer(self._sent)
            if newer is None:
                self._frames, self._next = (), 0
                return None
            kind, version, self._frames = newer
            self._sent[kind], self._next = version, 0
        self._next += 1
        return self._frames[self._next - 1]
