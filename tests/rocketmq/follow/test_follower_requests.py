"""What a follower asks of its broker beside the log: who it is, its end, its tables."""

import asyncio
import threading

import pytest

from fakes.fake_rocketmq import lost_tail
from fakes.follower_pair import Pair
from fakes.replicas import eventually
from tandemlog_server.rocketmq.follow import follower as follower_module
from tandemlog_server.rocketmq.follow.broker_facts import BrokerFacts, ask_facts
from tandemlog_server.rocketmq.follow.broker_tables import BrokerTables
from tandemlog_server.rocketmq.follow.takeover import Presence
from tandemlog_server.rocketmq.wire.client import RemotingClient, connected_socket
from tandemlog_server.rocketmq.wire.errors import BrokerError
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.rocketmq.wire.requests import (
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_BROKER_RUNTIME_INFO,
)


async def test_a_name_server_tells_where_the_broker_is(pair: Pair) -> None:
    pair.put(20)
    pair.follow(f"rocketmq://127.0.0.1:{pair.broker.port}/broker-a")
    await pair.equal()


async def test_a_name_server_that_does_not_know_the_broker_says_which_it_knows(pair: Pair) -> None:
    pair.follow(f"rocketmq://127.0.0.1:{pair.broker.port}/broker-b")
    await pair.fault("knows no broker 'broker-b'; it knows: broker-a")


async def test_no_process_at_the_address(pair: Pair) -> None:
    await pair.broker.stop()
    follower = pair.follow()
    await pair.fault("no process listens on 127.0.0.1:")
    look = await follower.observe()
    assert look.presence is Presence.NO_PROCESS
    assert not look.known


async def test_a_port_of_another_protocol(pair: Pair) -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)

    server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pair.put(20)
    pair.follow(f"rocketmq://127.0.0.1:{port}")
    await pair.fault("is it the port of a RocketMQ broker")
    await pair.unfollow()
    pair.broker.settings["haListenPort"] = str(port)
    pair.follow()
    await pair.fault("is it the HA port")
    assert pair.bench.store.log.wrote.value == 0
    server.close()


async def test_an_ha_port_where_no_process_listens(pair: Pair) -> None:
    pair.broker.settings["haListenPort"] = "1"
    pair.follow()
    await pair.fault("which broker broker-a of cluster shop")


@pytest.mark.parametrize("size", ["0", "--5", "9" * 5_000, str(1 << 70)])
async def test_a_broker_that_says_nonsense_is_asked_again(pair: Pair, size: str) -> None:
    pair.put(20)
    pair.broker.settings["mappedFileSizeCommitLog"] = size
    pair.follow()
    await pair.fault("as its mappedFileSizeCommitLog, which must be 4096 .. 2147483647")
    del pair.broker.settings["mappedFileSizeCommitLog"]
    await pair.equal()


async def test_settings_without_end_are_refused_by_their_length(pair: Pair) -> None:
    pair.broker.settings["filler"] = "x" * (2 << 20)
    pair.follow()
    await pair.fault("request 26: a command of 20")
    await pair.fault("the most here is 1048576")


async def test_an_ha_port_that_cannot_be_is_named(pair: Pair) -> None:
    pair.broker.settings["haListenPort"] = "70000"
    pair.follow()
    await pair.fault("'70000' as its haListenPort, which must be 1 .. 65535")


async def test_a_host_that_no_resolver_takes_is_an_error_of_the_broker() -> None:
    with pytest.raises(BrokerError, match="is no host and port"):
        await connected_socket("a" * 70 + ".example", 1)


async def test_tables_that_cannot_be_read_do_not_stop_the_log(pair: Pair) -> None:
    pair.broker.tables = {21: b"{"}
    pair.put(20)
    pair.follow()
    await pair.equal()


async def test_a_table_that_cannot_be_taken_does_not_keep_the_others_away(pair: Pair) -> None:
    pair.put(20)
    pair.broker.tables[GET_ALL_SUBSCRIPTION_GROUP_CONFIG] = b"[]"
    pair.follow()
    await pair.equal()
    offsets = pair.bench.store.consumer_offsets
    await eventually(lambda: offsets.of_pair("Orders", "theirs") == {0: 3, 1: 2})


async def test_a_look_tells_what_a_takeover_needs(pair: Pair) -> None:
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    look = await follower.observe()
    assert (look.presence, look.takes_writes) == (Presence.ANSWERS, True)
    assert (look.broker_end, look.durable, look.compared) == (pair.builder.end,) * 2 + (True,)
    pair.broker.permission = 4
    pair.broker.tables[43] = b'{"offsetTable":{"Orders@theirs":{0:19}}}'
    assert not (await follower.observe()).takes_writes
    assert pair.bench.store.consumer_offsets.offset("theirs", "Orders", 0) == 19
    await pair.broker.stop()
    look = await follower.observe()
    assert (look.presence, look.broker_end) == (Presence.NO_PROCESS, pair.builder.end)


def rounds() -> list[str]:
    """The rounds of requests that run."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()) == "broker-tables"]


async def test_no_round_of_requests_runs_while_the_log_is_cut(pair: Pair) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    await pair.broker.stop()
    lost_tail(pair.builder, pair.builder.records[-4].physical_offset)
    assert rounds()
    during: list[list[str]] = []
    pair.host.on_rebuild = lambda: during.append(rounds())
    await pair.broker.start()
    await pair.equal()
    assert during == [[]]


async def test_the_tables_of_one_connection_are_stored_before_the_next_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a log that was set aside meanwhile they would count as taken, and not be in the
    store."""
    monkeypatch.setattr(follower_module, "FIRST_PAUSE_S", 0.0)
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    replace, storing, opened = follower.tables.replace, threading.Event(), threading.Event()
    order: list[str] = []

    def slow(tables: BrokerTables, now_ms: int) -> None:
        storing.set()
        assert opened.wait(30)
        replace(tables, now_ms)
        order.append("tables")

    follower.tables.replace = slow  # type: ignore[method-assign]
    assert await asyncio.to_thread(storing.wait, 30)
    pair.host.on_lead = lambda: order.append("connection")
    await pair.broker.stop()
    await eventually(lambda: not rounds())
    for _ in range(100):
        await asyncio.sleep(0)
    opened.set()
    await eventually(lambda: "connection" in order)
    assert order[0] == "tables"


class HeldFacts:
    """What the broker answers to the next question for its facts is heard when `gate` opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(follower_module, "ask_facts", self._ask)

    async def _ask(self, client: RemotingClient, host: str, port: int) -> BrokerFacts:
        facts = await ask_facts(client, host, port)
        if not self.asked.is_set():
            self.asked.set()
            await self.gate.wait()
        return facts


async def test_an_older_answer_does_not_take_the_brokers_end_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover asks while the rounds do: its answer may be heard after a newer one."""
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    held = HeldFacts(monkeypatch)
    observing = asyncio.create_task(follower.observe())
    await asyncio.wait_for(held.asked.wait(), 30)
    pair.put(20)
    await eventually(lambda: follower.state.broker_end == pair.builder.end)
    held.gate.set()
    assert (await observing).broker_end == pair.builder.end


async def test_an_answer_of_a_process_that_has_ended_is_dropped(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    held = HeldFacts(monkeypatch)
    observing = asyncio.create_task(follower.observe())
    await asyncio.wait_for(held.asked.wait(), 30)
    pair.bench.clock.advance(1)
    await pair.broker.stop()
    await pair.broker.start()
    pair.put(5)
    await eventually(
        lambda: (
            follower.state.compared
            and follower.state.broker_end is not None
            and follower.state.broker_end == pair.builder.end
        )
    )
    held.gate.set()
    await observing
    facts = follower.state.facts
    assert facts is not None
    assert facts.boot_ms == pair.broker.boot_ms
    assert follower.state.broker_end == pair.builder.end


async def test_a_process_that_was_seen_by_a_round_alone_was_not_compared(pair: Pair) -> None:
    """It is gone again before the follower connects to it, with messages that it took."""
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    await eventually(lambda: follower.state.broker_end == pair.builder.end)
    assert (await follower.observe()).compared
    broker, answer = pair.broker, pair.broker._answer

    def last_answer(command: Command) -> Command:
        if command.code == GET_BROKER_RUNTIME_INFO:
            broker.boot_ms += 1
            for server in (broker._server, broker._ha_server):
                server.close()
            for link in broker._links:
                asyncio.get_running_loop().call_soon(link.close)
        return answer(command)

    broker._answer = last_answer  # type: ignore[method-assign]
    await pair.fault("no process listens")
    look = await follower.observe()
    assert look.presence is Presence.NO_PROCESS
    assert not look.compared
