"""The name of a name server, which moves: what DNS or a load balancer is to a fleet of clients.

    with MovingName("127.0.0.1:9876") as name:      clients have name.port as their name server
        name.move("127.0.0.1:9877")                 and are connected to the other one from now on

A move ends the connections that there are, as when the old name server is stopped: clients keep a
connection to a name server as long as it lives.
"""

import contextlib
import socket
import threading
from typing import Final, Self

CHUNK: Final = 64 << 10


class MovingName:
    """See the module. Each direction of a connection is a thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="moving-name")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._end_all()

    def move(self, address: str) -> None:
        """To another name server, for everybody."""
        with self._lock:
            self._address = address
        self._end_all()

    def _end_all(self) -> None:
        with self._lock:
            ending = list(self._open)
        for each in ending:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self._address.rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open.update((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
