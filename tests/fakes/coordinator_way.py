"""The way of one node to the coordinator, which can be cut while everything else goes on.

    node ──▶ CoordinatorWay ──▶ coordinator        cut(): connections end, new ones are refused

Plain TCP, in threads of this process; no rights are needed.
"""

import contextlib
import socket
import threading


class CoordinatorWay:
    """See the module. `with` it as long as its node runs."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "CoordinatorWay":
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            if self._is_cut:
                return
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                return
            with far:
                far.settimeout(None)
                with self._lock:
                    if self._is_cut:
                        return
                    self._sockets |= {near, far}
                back = threading.Thread(target=_copy, args=(far, near), daemon=True)
                back.start()
                _copy(near, far)
                back.join()
                with self._lock:
                    self._sockets -= {near, far}


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until either end is closed; then neither is of use."""
    with contextlib.suppress(OSError):
        while data := source.recv(64 << 10):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
