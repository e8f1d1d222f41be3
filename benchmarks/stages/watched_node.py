"""A node that notes when puts, rounds of dispatch and pulls pass its stages.

    python -m benchmarks.stages.watched_node MARKS ARGUMENTS OF `tandemlog`

The hooks are here and not in the product: they wrap functions of the put path, of dispatch and of
pulls, and fail at the start where one of these has another name.

    arrived     request id, read from the socket
    appended    request id, append begun, append done, end offset
    answer      request id, its outcome known in the loop
    written     answer begun to be written, written: of a put
    confirmed   log offset, moment; wrote, flushed, reputed: the same
    read        number of the reading, queue, next offset, reading begun, answer encoded
    read_sent   number of the reading, begun to be written, written
"""

import importlib
import itertools
import sys
from pathlib import Path
from typing import Any

from benchmarks.stages.marks import Marks, around, now
from tandemlog_server.node.node import Node
from tandemlog_server.node.pulls.queue_reads import QueueReads
from tandemlog_server.node.puts.put_pump import PutPump
from tandemlog_server.node.puts.put_stream import PendingPut
from tandemlog_server.node.services.data_session import DataSession
from tandemlog_server.storage.positions import Position

marks = Marks()


def watch_puts() -> None:
    read_at = 0

    def receive(original: Any) -> Any:
        async def watched(self: Any, stream: Any, data: Any) -> None:
            nonlocal read_at
            read_at = now()
            await original(self, stream, data)

        return watched

    def submit(original: Any) -> Any:
        def watched(self: Any, stream: Any, size: int, request: Any, problem: Any) -> None:
            marks.note("arrived", request.request_id, read_at)
            original(self, stream, size, request, problem)

        return watched

    def append(original: Any) -> Any:
        def watched(self: Any, store: Any) -> Any:
            began = now()
            result = original(self, store)
            marks.note("appended", self.request_id, began, now(), result.end_offset)
            return result

        return watched

    def answer(original: Any) -> Any:
        def watched(self: Any, status: int, error: Any) -> None:
            marks.note("answer", self.request_id, now())
            original(self, status, error)

        return watched

    around(PutPump, "receive", receive)
    around(PutPump, "_submit", submit)
    around(PendingPut, "append", append)
    around(PendingPut, "answer", answer)


def watch_reads() -> None:
    numbers = itertools.count(1)
    made: dict[int, int] = {}  # the number of the reading whose answer has this part

    def round_(original: Any) -> Any:
        def watched(self: Any, pull: Any, store: Any) -> Any:
            began, encode = now(), pull.encode

            def encoded(reading: Any) -> Any:
                parts, size = encode(reading)
                number, done = next(numbers), now()
                for each in reading.queues:
                    if len(each.result.sizes):
                        queue = pull.positions[each.index].queue_id
                        marks.note("read", number, queue, each.next_offset, began, done)
                        made[id(parts[0])] = number
                return parts, size

            pull.encode = encoded
            try:
                return original(self, pull, store)
            finally:
                pull.encode = encode

        return watched

    def send(original: Any) -> Any:
        async def watched(self: Any, call: int | None, parts: Any) -> None:
            began = now()
            number = made.pop(id(parts[1]), 0) if len(parts) > 1 else 0
            await original(self, call, parts)
            if number:
                marks.note("read_sent", number, began, now())
            elif self._stream is not None and call == self._stream.call:
                marks.note("written", began, now())

        return watched

    around(QueueReads, "_round", round_)
    around(DataSession, "_send", send)


def watch_node(path: Path) -> None:
    def follow(position: Position) -> None:
        position.listen(lambda: marks.note(position.name, position.value, now()))

    def start(original: Any) -> Any:
        async def watched(self: Node) -> None:
            await original(self)
            store = self.store
            for each in (store.log.wrote, store.log.flushed, store.confirmed, store.reputed):
                follow(each)
            marks.note_collections()

        return watched

    def stop(original: Any) -> Any:
        async def watched(self: Node) -> None:
            await original(self)
            marks.save(path)

        return watched

    around(Node, "start", start)
    around(Node, "stop", stop)


def main() -> None:
    path, *arguments = sys.argv[1:]
    watch_puts()
    watch_reads()
    watch_node(Path(path))
    sys.argv[1:] = arguments
    importlib.import_module("tandemlog_server.cli.app").main()


if __name__ == "__main__":
    main()
