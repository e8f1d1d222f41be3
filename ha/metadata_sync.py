"""Topics, groups and consumer offsets on their way to the slaves: whole tables, by version.

    table changes ──▶ its version differs ──▶ encoded once ──▶ sent to every slave that has another

Tables travel beside the log, not in it, so a slave may for a moment know a topic before its first
message or after it. Neither hurts: queues come from the log alone, and who becomes master lowers
the consumer offsets to what its log holds.
"""

from collections.abc import Mapping

from .frames import Metadata, encode_master_frame
from .store_port import StorePort, TablePort

TOPICS = "topics"
GROUPS = "groups"
CONSUMER_OFFSETS = "consumer-offsets"


def tables_of(store: StorePort) -> dict[str, TablePort]:
    """The tables of `store` under the names that they have on the stream."""
    return {
        TOPICS: store.topics,
        GROUPS: store.groups,
        CONSUMER_OFFSETS: store.consumer_offsets,
    }


class MetadataSource:
    """The newest frame of every table. `refresh` in a worker thread, `unsent` in the loop."""

    def __init__(self, tables: Mapping[str, TablePort]) -> None:
        self._tables = tables
        self._frames: dict[str, tuple[int, bytes]] = {}

    def refresh(self) -> bool:
        """Encode the tables that have changed; whether one has."""
        changed = False
        for kind, table in self._tables.items():
            # The version first: a change in between is then sent once more, never lost.
            version = table.version
            held = self._frames.get(kind)
            if held is None or held[0] != version:
                frame = Metadata(kind, table.to_json(), version)
                self._frames[kind] = (version, encode_master_frame(frame))
                changed = True
        return changed

    def unsent(self, sent: dict[str, int]) -> list[bytes]:
        """The frames of the versions that `sent` does not have; it has them then."""
        frames = []
        for kind, (version, frame) in self._frames.items():
            if sent.get(kind) != version:
                sent[kind] = version
                frames.append(frame)
        return frames
