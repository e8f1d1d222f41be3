"""A program that computes in its main thread and sends meanwhile: how long a message waits for its
acknowledgement, with Python's turns between threads and with short ones.

    python -m benchmarks.stages.computing_client ENDPOINT TOPIC as_is|short SECONDS

After each send it computes for about a third of a millisecond. Prints the median, ms, and how many
steps of its own work it did for each second of processor time.
"""

import argparse
import json
import statistics
import sys
from functools import partial

from benchmarks.peers.measures import BODY_BYTES, cpu_seconds
from benchmarks.stages.marks import now
from tandemlog import Message, Producer
from tandemlog.turns import take_short_turns

STEPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("topic")
    parser.add_argument("turns", choices=("as_is", "short"))
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    if given.turns == "short":
        take_short_turns()
    waits: list[float] = []

    def heard(sent: int, _done: object) -> None:
        waits.append((now() - sent) / 1e6)

    with Producer(given.endpoint) as producer:
        producer.send(Message(given.topic, b"first")).result(60)
        end, steps, cpu = now() + int(given.seconds * 1e9), 0, cpu_seconds()
        while (sent := now()) < end:
            future = producer.send(Message(given.topic, b"x" * BODY_BYTES))
            future.add_done_callback(partial(heard, sent))
            for _ in range(STEPS):
                sum(range(150))
            steps += STEPS
        producer.flush()
        rate = steps / (cpu_seconds() - cpu)
    sys.stdout.write(json.dumps({"ack_ms": statistics.median(waits), "steps": rate}) + "\n")


if __name__ == "__main__":
    main()
