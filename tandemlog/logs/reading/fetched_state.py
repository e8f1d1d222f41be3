"""What a node keeps beside its log, through FetchLogState: for a backup of a running cluster."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import grpc

from tandemlog.cluster.answer_errors import error_from
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.format.errors import FormatError
from tandemlog.format.files.log_history import LogHistory
from tandemlog.transport.security_files import SecurityFiles
from tandemlog.v1 import broker_pb2, broker_pb2_grpc

from ..job_errors import FetchError
from .fetched_log import FetchedLogSource, failure, open_channel

PROLOGUE = "prologue"
MOST_BYTES = 1 << 30
"""Of all tables: a node keeps them in memory, and so does this."""


@dataclass(frozen=True, slots=True)
class FetchedState:
    """`begin`, `end`: of what is confirmed, fsynced and dispatched there (log offsets), read before
    the tables; `tables`: by name, each as its file has it; `prologue` None: not asked for."""

    begin: int
    end: int
    file_size: int
    history: LogHistory
    delay_levels: str
    in_batch_queues: frozenset[str]
    at_ms: int
    tables: dict[str, bytes] = field(default_factory=dict)
    prologue: bytes | None = None


def fetched_state(source: FetchedLogSource, prologue_offset: int = 0) -> FetchedState:
    """With what came before a log that begins at `prologue_offset`, if that is not 0. Raises
    FetchError."""
    files = SecurityFiles(source.security)
    try:
        with open_channel(source.endpoint, files) as channel:
            call = broker_pb2_grpc.BrokerStub(channel).FetchLogState(
                broker_pb2.FetchLogStateRequest(prologue_offset=prologue_offset),
                metadata=files.current().metadata,
            )
            return state_of(source.endpoint, _received(source, call))
    except (TandemlogError, FormatError) as error:
        raise FetchError(f"the tables of {source.endpoint}: {error}") from error


def _received(
    source: FetchedLogSource, call: Iterable[broker_pb2.LogStateChunk]
) -> Iterator[broker_pb2.LogStateChunk]:
    try:
        yield from call
    except grpc.RpcError as error:
        raise failure(error, source.endpoint, source.security) from None


def state_of(endpoint: str, chunks: Iterator[broker_pb2.LogStateChunk]) -> FetchedState:
    """From a header, then parts. Raises TandemlogError, FormatError."""
    header = next(chunks, None)
    if header is None:
        raise NodeUnavailableError(f"{endpoint} ended the stream before its tables")
    if header.error.code:
        raise error_from(header.error, endpoint)
    parts: dict[str, bytearray] = {}
    size = 0
    for chunk in chunks:
        if chunk.error.code:
            raise error_from(chunk.error, endpoint)
        size += len(chunk.data)
        if size > MOST_BYTES:
            raise FormatError(f"its tables have more than {MOST_BYTES} bytes")
        parts.setdefault(chunk.table, bytearray()).extend(chunk.data)
    tables = {name: bytes(data) for name, data in parts.items()}
    try:
        history = LogHistory.from_json(json.loads(header.history))
    except ValueError as error:
        raise FormatError(f"its history cannot be read: {error}") from error
    return FetchedState(
        header.min_offset,
        header.confirm_offset,
        header.commit_log_file_size,
        history,
        header.delay_levels,
        frozenset(header.in_batch_queues),
        header.at_ms,
        {name: data for name, data in tables.items() if name != PROLOGUE},
        tables.get(PROLOGUE),
    )
