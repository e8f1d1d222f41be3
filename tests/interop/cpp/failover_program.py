"""A producer and a push consumer of RocketMQ's C++ client, while things happen to the nodes.

    python failover_program.py NAME_SERVERS TOPIC GROUP

It does what java/Failover.java does, and answers the same lines of its input in the same way:
"mark" begins to measure gaps anew, "stats" says what came of it so far, "stop" ends the producer.
"""

import importlib
import json
import sys
import threading
import time
from collections import Counter
from typing import Any

# by name: an import of "rocketmq" is one of this project's folder everywhere else, and not allowed
client: Any = importlib.import_module("rocketmq.client")

INTERVAL_S = 0.005


class Gap:
    """The longest time between two events since a mark, and from the last one until now."""

    def __init__(self) -> None:
        self._last, self._longest = time.monotonic(), 0.0

    def event(self) -> None:
        now = time.monotonic()
        self._last, self._longest = now, max(self._longest, now - self._last)

    def mark(self) -> None:
        self._longest = 0.0

    def longest_ms(self) -> float:
        return round(max(self._longest, time.monotonic() - self._last) * 1000, 1)


class Program:
    """One producer thread; deliveries come in threads of the client."""

    def __init__(self, name_servers: str, topic: str, group: str) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._acknowledged: set[str] = set()
        self._delivered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._acknowledgements, self._deliveries = Gap(), Gap()
        self._ended = threading.Event()
        self._consumer = client.PushConsumer(group)
        self._consumer.set_namesrv_addr(name_servers)
        self._consumer.subscribe(topic, self._take, "*")
        self._consumer.start()
        self._producer = client.Producer(f"{group}-producers")
        self._producer.set_namesrv_addr(name_servers)
        self._producer.start()

    def run(self) -> None:
        sender = threading.Thread(target=self._send)
        sender.start()
        self._print()
        for line in sys.stdin:
            if line.strip() == "mark":
                self._acknowledgements.mark()
                self._deliveries.mark()
            elif line.strip() == "stop":
                self._ended.set()
                sender.join()
            self._print()

    def _take(self, message: Any) -> None:
        key = message.keys
        with self._lock:
            self._delivered[key.decode() if isinstance(key, bytes) else key] += 1
            self._deliveries.event()

    def _send(self) -> None:
        number, turn = 0, time.monotonic()
        while not self._ended.wait(max(turn - time.monotonic(), 0)):
            key = str(number)
            message = client.Message(self._topic)
            message.set_keys(key)
            message.set_tags("t")
            message.set_body(key)
            number += 1
            try:
                status = self._producer.send_sync(message).status.name
            except Exception as problem:
                status = f"{type(problem).__name__} {problem}"[:200]
            with self._lock:
                if status == "OK":
                    self._acknowledged.add(key)
                    self._acknowledgements.event()
                else:
                    self._failed[status] += 1
            # what was missed meanwhile is not sent all at once
            turn = max(turn + INTERVAL_S, time.monotonic())

    def _print(self) -> None:
        with self._lock:
            missing = sorted(self._acknowledged - set(self._delivered))
            row: dict[str, Any] = {
                "acknowledged": len(self._acknowledged),
                "delivered": len(self._delivered),
                "repeated": sum(times > 1 for times in self._delivered.values()),
                "missing": len(missing),
                "some_missing": missing[:10],
                "acknowledgement_gap_ms": self._acknowledgements.longest_ms(),
                "delivery_gap_ms": self._deliveries.longest_ms(),
                "failed": dict(self._failed),
            }
            if self._ended.is_set():
                row["acknowledged_keys"] = sorted(self._acknowledged)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    Program(*sys.argv[1:4]).run()
