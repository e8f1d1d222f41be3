"""Each method of the protocol is implemented: a generated servicer would answer UNIMPLEMENTED.

The broker's service inherits from none, so that a method which it lacks keeps a node from starting.
"""

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.inner_node import config, running, stubs
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.node.node import Node
from tandemlog_server.node.services.admin_service import AdminService


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "n0")) as node:
        yield node


def test_every_call_is_implemented() -> None:
    methods = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods_by_name
    assert methods
    for method in methods:
        assert inspect.getmodule(getattr(AdminService, method)) is inspect.getmodule(AdminService)


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x"])
async def test_the_stores_own_topics_are_neither_made_nor_deleted(master: Node, name: str) -> None:
    async with stubs(master) as channel:
        made = await channel.admin.CreateTopic(
            admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=name))
        )
        gone = await channel.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name=name))
    for answer in (made, gone):
        assert answer.error.code == common_pb2.INVALID_TOPIC_NAME
        assert (answer.error.field, name in answer.error.message) == ("name", True)
