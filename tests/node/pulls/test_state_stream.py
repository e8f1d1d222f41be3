"""The tables of a node, and what came before a place in its log, in parts."""

import asyncio
from unittest.mock import patch

import pytest

from fakes.stores import CONFIG, Bench
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.format.errors import FormatError
from tandemlog.logs.reading import fetched_state
from tandemlog.logs.reading.fetched_state import FetchedState, state_of
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls import state_stream
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.pulls.state_stream import StateStream

SIZE = CONFIG.commit_log_file_size


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.store.become_master(1)
    made.put(40, size=300)
    made.settle()
    made.store.consumer_offsets.commit("G", "T", 0, 3)
    return made


async def chunks(bench: Bench, prologue_offset: int = 0) -> list[broker_pb2.LogStateChunk]:
    turns, caller = ReadTurns(1, 1 << 20), Caller()
    stream = StateStream(bench.store, turns)
    request = broker_pb2.FetchLogStateRequest(prologue_offset=prologue_offset)
    try:
        found = [
            broker_pb2.LogStateChunk.FromString(each)
            async for each in stream.chunks(request, caller)
        ]
    finally:
        turns.close()
    assert turns.held_bytes == 0
    return found


async def state(bench: Bench, prologue_offset: int = 0) -> FetchedState:
    return state_of("n", iter(await chunks(bench, prologue_offset)))


async def test_a_caller_gets_the_tables_as_their_files_have_them(bench: Bench) -> None:
    store, found = bench.store, await state(bench)
    assert (found.begin, found.end, found.file_size) == (0, store.confirmed.value, SIZE)
    assert found.history == store.log_identity.history
    assert found.tables["topics"] == store.topics.to_json()
    assert found.tables["consumer-offsets"] == store.consumer_offsets.to_json()
    assert set(found.tables) == {
        "topics",
        "groups",
        "consumer-offsets",
        "group-members",
        "log-identity",
    }
    assert found.prologue is None


async def test_large_tables_come_in_parts(bench: Bench) -> None:
    with patch.object(state_stream, "PART_BYTES", 7):
        parts = await chunks(bench, SIZE)
        found = state_of("n", iter(parts))
    assert max(len(each.data) for each in parts) == 7
    assert found.tables["topics"] == bench.store.topics.to_json()
    assert found.prologue == bench.store.prologue(SIZE)


@pytest.mark.parametrize("offset", [-SIZE, 1, SIZE - 1, 100 * SIZE])
async def test_a_log_begins_where_a_file_does(bench: Bench, offset: int) -> None:
    with pytest.raises(RequestRefusedError, match="start of a commit log file"):
        await chunks(bench, offset)


async def test_one_caller_at_a_time_has_them_in_memory(bench: Bench) -> None:
    turns = ReadTurns(2, 1 << 20)
    stream = StateStream(bench.store, turns)
    request = broker_pb2.FetchLogStateRequest()
    try:
        first, second = stream.chunks(request, Caller()), stream.chunks(request, Caller())
        await anext(first)
        waiting = asyncio.ensure_future(anext(second))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await first.aclose()  # type: ignore[attr-defined]
        assert await waiting
        await second.aclose()  # type: ignore[attr-defined]
    finally:
        turns.close()


async def test_a_caller_that_receives_nothing_does_not_hold_the_others_up(bench: Bench) -> None:
    turns = ReadTurns(2, 1 << 20)
    stream = StateStream(bench.store, turns, wait_s=0)
    request = broker_pb2.FetchLogStateRequest()
    try:
        first = stream.chunks(request, Caller())
        await anext(first)
        for _ in range(2):
            with pytest.raises(RequestRefusedError, match="another backup") as refused:
                await anext(stream.chunks(request, Caller()))
            assert refused.value.code == common_pb2.BUSY
        await first.aclose()  # type: ignore[attr-defined]
        assert await anext(stream.chunks(request, Caller()))
    finally:
        turns.close()


def test_what_is_no_state_is_refused() -> None:
    chunk = broker_pb2.LogStateChunk
    refused = common_pb2.Error(code=common_pb2.BUSY, message="no turn came")
    with pytest.raises(NodeUnavailableError, match="before its tables"):
        state_of("n", iter(()))
    for answers in ([chunk(error=refused)], [chunk(history="{}"), chunk(error=refused)]):
        with pytest.raises(TandemlogError, match="no turn came"):
            state_of("n", iter(answers))
    with pytest.raises(FormatError, match="history cannot be read"):
        state_of("n", iter([chunk(history="{")]))
    with (
        patch.object(fetched_state, "MOST_BYTES", 10),
        pytest.raises(FormatError, match="more than 10 bytes"),
    ):
        state_of("n", iter([chunk(), chunk(table="topics", data=bytes(11))]))
