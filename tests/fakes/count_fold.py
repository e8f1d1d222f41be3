"""A fold for tests: how many records each topic has, and where the newest one is."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tandemlog_server.storage.folds.dispatch_batch import DispatchBatch
from tandemlog_server.storage.folds.fold import ANYWHERE
from tandemlog_server.storage.folds.service_fold import ServiceFold


class CountFold(ServiceFold):
    """It needs the log from `needed` on."""

    name = "counts"

    def __init__(self, topic: str = "") -> None:
        super().__init__()
        self.topic = topic
        self.counts: dict[str, list[int]] = {}
        self.needed = ANYWHERE

    def _take(self, batch: DispatchBatch, first: int) -> list[str]:
        columns = batch.columns
        for row in range(first, columns.count):
            topic = columns.topics[int(columns.topic_index[row])]
            if self.topic in (topic, ""):
                entry = self.counts.setdefault(topic, [0, 0])
                entry[0] += 1
                entry[1] = int(columns.physical_offset[row])
                assert batch.record(row)[:4] == int(columns.size[row]).to_bytes(4)
                self.changes += 1
        return []

    def _clear(self) -> None:
        self.counts = {}

    def _encode(self) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        return {"topics": len(self.counts)}, [json.dumps(self.counts).encode()]

    def _decode(self, head: Mapping[str, Any], rows: bytes) -> None:
        counts = json.loads(rows)
        if len(counts) != head["topics"]:
            raise ValueError(f"{len(counts)} topics")
        self.counts = counts

    def needs_from(self) -> int:
        return self.needed
