"""Another node of the cluster, as the scrub of this one asks it.

One thread calls, the scrub's. A node that does not answer in time, does not know the call, or does
not take this node for a member has no copy of the block, for now: the scrub continues without it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from tandemlog.cluster.histories import put_history
from tandemlog.format.fast_crc import crc32
from tandemlog.transport.channels import open_sync_channel
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog.v1 import replication_pb2
from tandemlog_server.ha.protocol.replication_service import SERVICE
from tandemlog_server.storage.scrub.block_answers import BlockAnswer, BlockQuestion
from tandemlog_server.storage.scrub.block_check import BLOCK
from tandemlog_server.storage.scrub.scrubber import PeerError
from tandemlog_server.storage.scrub.verdicts import CopyState

from .scrub_methods import STATES

if TYPE_CHECKING:
    from google.protobuf.message import Message

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
OPTIONS: Final = (("grpc.max_receive_message_length", 4 * BLOCK),)
_STATES: Final[Mapping[int, CopyState]] = {number: state for state, number in STATES.items()}


class NodePeer:
    """See the module. `close` when it is not asked any more."""

    def __init__(
        self, name: str, endpoint: str, cluster_id: str, node_id: str, files: SecurityFiles
    ) -> None:
        """`node_id` is this node's. Raises PeerError."""
        self._name = name
        self.endpoint = endpoint
        self._cluster_id, self._node_id = cluster_id, node_id
        self._files = files
        try:
            self._channel = open_sync_channel(endpoint, files, OPTIONS)
        except SecurityFileError as error:
            raise PeerError(str(error)) from error
        self._checksum = self._method("BlockChecksum", replication_pb2.BlockChecksumResponse)
        self._fetch = self._method("FetchBlock", replication_pb2.FetchBlockResponse)

    @property
    def name(self) -> str:
        return self._name

    def ask(self, question: BlockQuestion) -> BlockAnswer:
        request = replication_pb2.BlockChecksumRequest(
            cluster_id=self._cluster_id,
            node_id=self._node_id,
            start=question.start,
            end=question.end,
            limit=question.limit,
            checksum=question.checksum,
        )
        put_history(question.history, request.history)
        found = self._call(self._checksum, request)
        state = _STATES.get(found.state)
        if state is None:
            raise PeerError(f"{self._name} answers with a state {found.state} that is not known")
        return BlockAnswer(state, found.end, found.checksum, found.fault)

    def fetch(self, start: int, end: int) -> bytes:
        pieces, at = [], start
        while at < end:
            request = replication_pb2.FetchBlockRequest(
                cluster_id=self._cluster_id, node_id=self._node_id, start=at, end=end
            )
            found = self._call(self._fetch, request)
            if not found.data or len(found.data) > end - at or crc32(found.data) != found.crc:
                raise PeerError(f"{self._name} sent bytes that are not those it meant to send")
            pieces.append(found.data)
            at += len(found.data)
        return b"".join(pieces)

    def close(self) -> None:
        self._channel.close()

    def _method(self, name: str, answer: Any) -> Callable[..., Any]:
        method: Callable[..., Any] = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return method

    def _call(self, method: Callable[..., Any], request: "Message") -> Any:
        try:
            metadata = self._files.current().metadata
            found = method(request, timeout=TIMEOUT_S, metadata=metadata)
        except SecurityFileError as error:
            raise PeerError(str(error)) from error
        except grpc.RpcError as error:
            code = error.code().name if isinstance(error, grpc.Call) else ""
            raise PeerError(f"{self._name} at {self.endpoint}: {code}") from error
        if found.HasField("error"):
            raise PeerError(f"{self._name} refuses: {found.error.message}")
        return found
