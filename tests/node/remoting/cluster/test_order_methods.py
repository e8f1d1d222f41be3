"""The key-value requests by which mqadmin makes topics keep an order."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.popping_node import BROKER, TOPIC, Popper, connected, popping_node
from tandemlog_server.rocketmq.wire.remoting import Command

PUT, GET, DELETE, LIST, ROUTE = 100, 101, 102, 219, 105
ORDER = "ORDER_TOPIC_CONFIG"
NOT_FOUND, NO_TOPIC = 22, 17


@pytest.fixture
async def popper(tmp_path: Path) -> AsyncIterator[Popper]:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        yield popper


async def ask(popper: Popper, code: int, key: str = TOPIC, **fields: str) -> Command:
    return await popper.ask(code, **{"namespace": ORDER, "key": key, **fields})


async def test_a_topic_gets_an_order_and_loses_it(popper: Popper) -> None:
    assert (await ask(popper, GET)).code == NOT_FOUND
    assert (await ask(popper, PUT, value=f"{BROKER}:4")).code == 0
    assert popper.node.store.topics.table[TOPIC].order
    assert (await ask(popper, GET)).fields["value"] == f"{BROKER}:4"
    listed = json.loads((await ask(popper, LIST)).body)
    assert listed == {"table": {TOPIC: f"{BROKER}:4"}}
    route = json.loads((await popper.ask(ROUTE, topic=TOPIC)).body)
    assert route["orderTopicConf"] == f"{BROKER}:4"
    assert (await ask(popper, DELETE)).code == 0
    assert (await ask(popper, GET)).code == NOT_FOUND
    assert json.loads((await ask(popper, LIST)).body) == {"table": {}}
    assert (await ask(popper, DELETE, key="none")).code == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"key": "none", "value": f"{BROKER}:4"}, NO_TOPIC),
        ({"value": "another:4"}, 13),
        ({"value": f"{BROKER}:many"}, 13),
        ({"value": ""}, 13),
        ({"key": "", "value": f"{BROKER}:4"}, 13),
        ({"namespace": "OTHER", "value": f"{BROKER}:4"}, 13),
    ],
)
async def test_what_says_no_order_is_refused(
    popper: Popper, fields: dict[str, str], code: int
) -> None:
    assert (await ask(popper, PUT, **fields)).code == code
    assert not popper.node.store.topics.table[TOPIC].order


async def test_another_namespace_is_empty(popper: Popper) -> None:
    assert (await ask(popper, LIST, namespace="OTHER")).code == NOT_FOUND
