"""A node reduced to what readers of segments ask it: who it is, and bytes of its log."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2


class SegmentServer:
    """Serves the log files of a store from `start` to `confirmed`. `drop_after`: each stream ends
    without a word after so many chunks."""

    def __init__(
        self,
        store: Path,
        file_size: int,
        start: int,
        confirmed: int,
        drop_after: int = 1 << 30,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._store = store
        self._file_size = file_size
        self._start = start
        self._confirmed = confirmed
        self._drop_after = drop_after
        self.streams = 0
        self._server = grpc.server(ThreadPoolExecutor(4))
        describe = grpc.unary_unary_rpc_method_handler(
            self._describe,
            request_deserializer=admin_pb2.DescribeClusterRequest.FromString,
            response_serializer=admin_pb2.DescribeClusterResponse.SerializeToString,
        )
        fetch = grpc.unary_stream_rpc_method_handler(
            self._fetch,
            request_deserializer=broker_pb2.FetchSegmentRangeRequest.FromString,
            response_serializer=broker_pb2.SegmentChunk.SerializeToString,
        )
        served: Any = {
            "Admin": {"DescribeCluster": describe},
            "Broker": {"FetchSegmentRange": fetch},
        }
        for service, methods in served.items():
            handler = grpc.method_handlers_generic_handler(f"tandemlog.v1.{service}", methods)
            self._server.add_generic_rpc_handlers((handler,))
        any_port = "127.0.0.1:0"
        if credentials is None:
            port = self._server.add_insecure_port(any_port)
        else:
            port = self._server.add_secure_port(any_port, credentials)
        self.endpoint = f"127.0.0.1:{port}"
        self.proofs: set[str] = set()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(0).wait()

    def _note(self, context: Any) -> None:
        self.proofs.add(dict(context.invocation_metadata()).get("authorization", ""))

    def _describe(self, request: object, context: Any) -> admin_pb2.DescribeClusterResponse:
        self._note(context)
        node = common_pb2.NodeStatus(
            node_id="n0",
            min_offset=self._start,
            confirm_offset=self._confirmed,
            commit_log_file_size=self._file_size,
        )
        return admin_pb2.DescribeClusterResponse(answered_by="n0", nodes=[node])

    def _fetch(
        self, request: broker_pb2.FetchSegmentRangeRequest, context: Any
    ) -> Iterator[broker_pb2.SegmentChunk]:
        self._note(context)
        self.streams += 1
        at = request.physical_offset
        if at < self._start:
            error = common_pb2.Error(code=common_pb2.OFFSET_OUT_OF_RANGE, message="before the log")
            yield broker_pb2.SegmentChunk(error=error)
            return
        end = min(self._confirmed, at + (request.length or 1 << 62))
        for number in range(self._drop_after):
            if at >= end:
                return
            del number
            base = at - at % self._file_size
            size = min(700, end - at, base + self._file_size - at)
            data = (self._store / "commitlog" / f"{base:020d}").read_bytes()
            yield broker_pb2.SegmentChunk(
                physical_offset=at, data=data[at - base : at - base + size]
            )
            at += size
