"""The context of a call that came by a data connection, for the door in place of gRPC's."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grpc


class CallAbortedError(Exception):
    """The call ended with a status in place of an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class DataContext:
    """See the module. `peer` names the connection as gRPC does, `authorization` is the value that
    its last TOKEN had. `ended` is to be called when the call is over, answered or not. `status` is
    what a stream said at its end, 0 and no text if all is well."""

    def __init__(self, peer: str, authorization: str) -> None:
        self._peer = peer
        self._metadata = (("authorization", authorization),) if authorization else ()
        self._callbacks: list[Callable[[Any], None]] = []
        self.status = 0, ""

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> Mapping[str, Any]:
        return {}

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise CallAbortedError(code.value[0], details)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code.value[0], self.status[1]

    def set_details(self, details: str) -> None:
        self.status = self.status[0], details

    def ended(self) -> None:
        for callback in self._callbacks:
            callback(None)
