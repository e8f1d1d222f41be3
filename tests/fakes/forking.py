"""A program that talks over gRPC and starts children with a `preexec_fn`, as PySpark starts Java.

Prints what each child that died has ended with, one line each.
"""

import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tandemlog  # noqa: F401 - before gRPC: see there

# isort: split
import grpc

CHILDREN = 80


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    handler = grpc.method_handlers_generic_handler(
        "Echo", {"Say": grpc.unary_unary_rpc_method_handler(lambda said, _: said)}
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    over = threading.Event()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        say: Any = channel.unary_unary("/Echo/Say")

        def talk() -> None:
            while not over.wait(0.001):
                say(b"hello")

        talkers = [threading.Thread(target=talk) for _ in range(2)]
        for talker in talkers:
            talker.start()
        for _ in range(CHILDREN):
            child = subprocess.Popen(["true"], preexec_fn=ignore_interrupts)
            if child.wait():
                print(child.returncode)
        over.set()
        for talker in talkers:
            talker.join()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
