"""Does the event loop of a node stand: short calls one after the other, and how long each took.

Run as a program it asks one node until it is ended, and prints the calls that took long:

    python tests/fuzz/probe.py 127.0.0.1:10911 20      those above 20 ms, as "start seconds"

The start is of the clock that all processes of a machine share (time.monotonic).
"""

import sys
import threading
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PAUSE_S = 0.002


class Probe:
    """`with Probe(endpoint) as probe: …; probe.longest` in seconds; in a thread of its own."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(
            endpoint, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._stub = health_pb2_grpc.HealthStub(self._channel)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest = 0.0

    def ask(self) -> float:
        """Seconds of one call."""
        start = time.perf_counter()
        self._stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        return time.perf_counter() - start

    def __enter__(self) -> "Probe":
        for _ in range(3):
            self.ask()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._channel.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.longest = max(self.longest, self.ask())
            except grpc.RpcError:
                self.longest = max(self.longest, 60.0)
            time.sleep(PAUSE_S)


def main(endpoint: str, threshold_ms: str) -> None:
    probe, threshold = Probe(endpoint), float(threshold_ms) / 1000
    while True:
        start = time.monotonic()
        try:
            took = probe.ask()
        except grpc.RpcError:
            time.sleep(0.05)
            continue
        if took > threshold:
            print(f"{start:.6f} {took:.6f}", flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
