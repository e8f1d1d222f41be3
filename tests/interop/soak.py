"""Minutes of load on a broker and its follower, with a fault every few seconds.

    python -m interop.soak MINUTES [VERSION ...]      (make soak MINUTES=10)

Either side is killed or paused, the node's connections are cut, the broker is restarted in order.
In the end both logs are equal byte for byte, each message that the broker acknowledged is served by
the follower, and the stores are the same; what is not is printed, and the exit code is 1.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from interop.live import SideBySide, check_alone, check_same, side_by_side

REST_S = 6.0


def kill_node(pair: SideBySide) -> None:
    pair.node.kill()
    time.sleep(random.random())
    pair.node.start()


def stop_node(pair: SideBySide) -> None:
    pair.node.stop()
    pair.node.start()


def pause_node(pair: SideBySide) -> None:
    pair.node.pause()
    time.sleep(3)
    pair.node.resume()


def kill_broker(pair: SideBySide) -> None:
    pair.broker.kill()
    pair.broker.restart()
    pair.broker.wait_until_serving()


def stop_broker(pair: SideBySide) -> None:
    pair.broker.restart()
    pair.broker.wait_until_serving()


def pause_broker(pair: SideBySide) -> None:
    pair.broker.pause()
    time.sleep(4)
    pair.broker.resume()


def cut_connections(pair: SideBySide) -> None:
    """As a firewall that resets them."""
    for port in (pair.broker.port, pair.broker.ha_port):
        subprocess.run(["ss", "-K", "dst", "127.0.0.1", "dport", "=", str(port)],
                       capture_output=True, check=False)  # fmt: skip


FAULTS: tuple[Callable[[SideBySide], None], ...] = (
    kill_node, kill_node, stop_node, pause_node, kill_broker, stop_broker, pause_broker,
    cut_connections, cut_connections,
)  # fmt: skip


def play(folder: Path, version: str, minutes: float) -> str:
    """Returns one line of what was done; raises AssertionError for what must not be."""
    done: Counter[str] = Counter()
    with side_by_side(folder, version) as pair:
        pair.follow()
        load = pair.load(rate=1_200, body_bytes=500)
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            time.sleep(REST_S)
            fault = random.choice(FAULTS)
            fault(pair)
            done[fault.__name__] += 1
        summary = load.stop()
        pair.equal()
        promised = load.acknowledged()
        pair.served(promised)
        _, end = pair.broker_span()
        assert pair.node.stop() == 0
        pair.broker.stop()
        check_alone(pair.node.store)
        check_same(pair.node.store, pair.broker.store)
    faults = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    return (
        f"{version}: {len(promised)} messages acknowledged and all served, {summary.failed} not "
        f"acknowledged, {end} bytes of log equal; {faults}"
    )


def main() -> int:
    minutes, versions = float(sys.argv[1]), sys.argv[2:] or ["5.5.0", "4.9.7"]
    for version in versions:
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        try:
            print(play(folder, version, minutes), flush=True)
        except AssertionError as error:
            print(f"{version}: {error}; the folder is kept: {folder}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
