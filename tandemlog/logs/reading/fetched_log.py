"""A node's log through FetchSegmentRange: for readers that have no disk of the store.

    stream   |chunk|chunk|chunk|...          one call runs ahead of the reader
                ^ read_into                  chunks before it are dropped; a jump opens a new call

The node sends only what is confirmed: its confirm offset is the end of the log. The task that reads
creates the channels, never before a fork.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from tandemlog.cluster.answer_errors import error_from, error_from_rpc
from tandemlog.cluster.endpoints import parse_endpoints
from tandemlog.cluster.node import CHANNEL_OPTIONS
from tandemlog.cluster.profiles import chosen
from tandemlog.errors import (
    AuthenticationError,
    NodeUnavailableError,
    SecurityError,
    TandemlogError,
)
from tandemlog.transport.channels import open_sync_channel
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog.transport.tls_faults import explain_now, may_be_handshake
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2

from ..job_errors import FetchError, OptionError
from .log_bytes import LogBytes
from .log_end import LogEnd, Tail
from .log_files import LogFiles, remote_files

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class FetchedLogSource:
    """The log of one node, as it was when `fetched_log` asked."""

    endpoint: str
    files: LogFiles
    first: int
    confirmed: int
    timeout_ms: int
    security: Security = field(default_factory=Security)

    def connect(self) -> LogBytes:
        return FetchedLog(self.endpoint, self.files, self.confirmed, self.timeout_ms, self.security)

    def start(self) -> int:
        return self.first

    def check_complete(self, start: int = 0, end: int | None = None) -> None:
        """A node has all that it confirmed."""

    def end(self) -> LogEnd:
        name = self.files.path_of(self.confirmed)
        return LogEnd(self.confirmed, name, Tail.ZEROS, "the node's confirm offset")


def fetched_log(
    endpoints: str, timeout_ms: int, connecting: Mapping[str, str] | None = None
) -> FetchedLogSource:
    """Ask the first of the endpoints that answers for its log; `connecting` as in open_log. Raises
    OptionError, FetchError."""
    try:
        profile = chosen({**(connecting or {}), "endpoint": endpoints})
        parsed = parse_endpoints(profile.endpoint)
    except ValueError as error:
        raise OptionError(f"option endpoint: {error}") from None
    failures = []
    for endpoint in parsed:
        try:
            status = _describe(endpoint, timeout_ms, profile.security)
        except TandemlogError as error:
            failures.append(str(error))
            continue
        start, end = status.min_offset, status.confirm_offset
        files = remote_files(start, end, status.commit_log_file_size, endpoint)
        return FetchedLogSource(endpoint, files, start, end, timeout_ms, profile.security)
    raise FetchError("; ".join(failures))


def open_channel(endpoint: str, files: SecurityFiles) -> grpc.Channel:
    try:
        return open_sync_channel(endpoint, files, CHANNEL_OPTIONS)
    except SecurityFileError as error:
        raise SecurityError(str(error)) from None


def failure(error: Any, endpoint: str, security: Security) -> TandemlogError:
    """The typed error of a failed call."""
    if security.tls and may_be_handshake(error.details()):
        fault = explain_now(endpoint, security)
        if fault is not None:
            kind = AuthenticationError if fault.certain else NodeUnavailableError
            return kind(f"{endpoint}: {fault.text}", reason=fault.short)
    return error_from_rpc(error.code(), error.details(), endpoint)


def _describe(endpoint: str, timeout_ms: int, security: Security) -> common_pb2.NodeStatus:
    """What the node says about itself."""
    files = SecurityFiles(security)
    with open_channel(endpoint, files) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        try:
            reply = stub.DescribeCluster(
                admin_pb2.DescribeClusterRequest(),
                timeout=timeout_ms / 1000,
                metadata=files.current().metadata,
            )
        except grpc.RpcError as error:
            raise failure(error, endpoint, security) from None
    if reply.error.code:
        raise error_from(reply.error, endpoint)
    for node in reply.nodes:
        if node.node_id == reply.answered_by:
            return node
    raise NodeUnavailableError(f"{endpoint}: it does not say which of the nodes it is")


class FetchedLog:
    """The bytes for one task. Not for several threads."""

    def __init__(
        self,
        endpoint: str,
        files: LogFiles,
        end: int,
        timeout_ms: int,
        security: Security,
    ) -> None:
        self._endpoint = endpoint
        self._security = SecurityFiles(security)
        self._files = files
        self._end = end
        self._timeout_ms = timeout_ms
        self._channel: grpc.Channel | None = None
        self._call: Iterator[broker_pb2.SegmentChunk] | None = None
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._next = -1

    def read_into(self, offset: int, target: memoryview) -> int:
        """As LogBytes. Raises FetchError."""
        file = self._files.find(offset)
        limit = min(self._end, file.end if file is not None else self._end)
        wanted = min(len(target), limit - offset)
        done = 0
        while done < wanted:
            begin, data = self._chunk_at(offset + done)
            piece = data[offset + done - begin :][: wanted - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
        return max(done, 0)

    def next_data(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._drop_call()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _chunk_at(self, offset: int) -> tuple[int, bytes]:
        """The chunk that holds the offset, memoryview-sliceable."""
        while self._chunks and self._chunks[0][0] + len(self._chunks[0][1]) <= offset:
            self._chunks.popleft()
        if self._chunks and self._chunks[0][0] <= offset:
            return self._chunks[0]
        if self._chunks or self._next != offset:
            self._drop_call()
            self._next = offset
        retrying = Retrying(
            retry=retry_if_exception_type(NodeUnavailableError),
            stop=stop_after_delay(self._timeout_ms / 1000),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            reraise=True,
        )
        try:
            return retrying(self._receive)
        except TandemlogError as error:
            raise FetchError(
                f"bytes of the log at {offset} from {self._endpoint}: {error}"
            ) from error

    def _receive(self) -> tuple[int, bytes]:
        """The next chunk of the running call, or of a new one."""
        try:
            if self._call is None:
                self._call = self._open()
            chunk = next(self._call, None)
        except grpc.RpcError as error:
            self._drop_call()
            raise failure(error, self._endpoint, self._security.security) from None
        if chunk is None:
            self._drop_call()
            raise NodeUnavailableError(f"{self._endpoint} ended the stream at {self._next}")
        if chunk.error.code:
            self._drop_call()
            raise error_from(chunk.error, self._endpoint)
        if chunk.physical_offset != self._next or not chunk.data:
            self._drop_call()
            raise NodeUnavailableError(
                f"{self._endpoint} gave {len(chunk.data)} bytes at {chunk.physical_offset}"
            )
        self._next += len(chunk.data)
        self._chunks.append((chunk.physical_offset, chunk.data))
        return self._chunks[-1]

    def _open(self) -> Iterator[broker_pb2.SegmentChunk]:
        if self._channel is None:
            self._channel = open_channel(self._endpoint, self._security)
        request = broker_pb2.FetchSegmentRangeRequest(
            physical_offset=self._next, length=self._end - self._next, chunk_bytes=CHUNK_BYTES
        )
        stub = broker_pb2_grpc.BrokerStub(self._channel)
        call: Iterator[broker_pb2.SegmentChunk] = stub.FetchSegmentRange(
            request, metadata=self._security.current().metadata
        )
        return call

    def _drop_call(self) -> None:
        if self._call is not None:
            self._call.cancel()  # type: ignore[attr-defined]
        self._call = None
        self._chunks.clear()
