"""A member of a group in a process of its own: handles messages, and writes down what happens.

    python group_worker.py ENDPOINTS GROUP TOPIC NAME FILE

Each line of FILE: seconds of the machine's monotonic clock, member, what, queue, offset. A commit
has two: when it begins, and how it ended.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable

from tandemlog import Consumer, FollowOptions, errors

OPTIONS = FollowOptions(auto_commit_ms=None, session_timeout_ms=15_000, wait_ms=1_000)


def main() -> None:
    endpoints, group, topic, name, path = sys.argv[1:]
    with open(path, "a", buffering=1) as file:

        def note(what: str, queue_id: int, offset: int = -1) -> None:
            file.write(f"{time.monotonic():.6f} {name} {what} {queue_id} {offset}\n")

        def noting(what: str) -> Callable[[object, Iterable[tuple[str, int]]], None]:
            def noted(_: object, queues: Iterable[tuple[str, int]]) -> None:
                for _, queue_id in queues:
                    note(what, queue_id)

            return noted

        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
        with Consumer(endpoints.split(","), group=group, options=OPTIONS) as consumer:
            stream = consumer.follow(
                topic,
                on_assigned=noting("assigned"),
                on_revoked=noting("revoked"),
                on_lost=noting("lost"),
            )
            with stream:
                note("started", -1)
                while not ended:
                    message = stream.poll(200)
                    if message is None:
                        continue
                    place = message.queue_id, message.queue_offset
                    note("handled", *place)
                    note("commits", *place)
                    try:
                        stream.commit(message)
                        note("committed", *place)
                    except errors.TandemlogError as error:
                        note(type(error).__name__, *place)


if __name__ == "__main__":
    main()
