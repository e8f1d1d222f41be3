"""What is said as the master is said by a node that leads; each method says whose word it is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tandemlog.v1 import (
    admin_pb2,
    broker_pb2,
    common_pb2,
    replication_pb2,
    transaction_pb2,
    work_pb2,
)
from tandemlog_server.node.error_status import (
    FOR_EVER,
    RequestRefusedError,
    not_sure,
)
from tandemlog_server.node.services.grpc_server import SERVICES
from tandemlog_server.node.services.master_answers import (
    CHANGE,
    EITHER,
    GROUPS,
    NODE,
    POSITIONS,
    READ,
    SPEAKS,
    Leadership,
    Speaks,
    speaks,
)
from tandemlog_server.node.services.permissions import RULES, NoRuleError

OF_THE_REQUEST = frozenset(
    {
        common_pb2.INVALID_TOPIC_NAME,
        common_pb2.INVALID_ARGUMENT,
        common_pb2.MESSAGE_TOO_LARGE,
        common_pb2.PROPERTIES_TOO_LARGE,
        common_pb2.BAD_RECORD,
        common_pb2.BATCH_TOO_LARGE,
        common_pb2.OFFSET_OUT_OF_RANGE,
        common_pb2.CHANGE_REFUSED,
        common_pb2.UNAUTHENTICATED,
        common_pb2.PERMISSION_DENIED,
        common_pb2.INTERNAL,
    }
)
"""What is wrong with the request or its caller, with this node's own files, or with a change of the
cluster, which its coordinator has refused: true under any master."""

PASSING = frozenset(
    {
        common_pb2.NOT_MASTER,
        common_pb2.STORE_READ_ONLY,
        common_pb2.DISK_FULL,
        common_pb2.BUSY,
        common_pb2.NOT_IN_SYNC,
        common_pb2.OUTCOME_UNKNOWN,
        common_pb2.SHUTTING_DOWN,
        common_pb2.UNREADABLE,
        common_pb2.COORDINATOR_UNAVAILABLE,
    }
)
"""What a caller asks again, here or elsewhere."""

FILES = (
    broker_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    work_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
    transaction_pb2.DESCRIPTOR,
)
METHODS = {
    f"{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
LIST = admin_pb2.ListTopicsRequest()
OF_MASTER = admin_pb2.ListTopicsRequest(of_master=True)


def leadership_of(role: Any) -> Leadership:
    return Leadership(role)


class Role:
    """A node that calls itself master of `claims`, and knows that it leads `led`."""

    def __init__(self, claims: int | None, led: int | None) -> None:
        self.claims, self.led = claims, led
        self.asked = 0

    @property
    def role(self) -> "Role":
        return self

    def epoch(self) -> int | None:
        return self.claims

    async def leads(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.led is not None:
            return self.led
        if self.claims is None:
            raise RequestRefusedError(common_pb2.NOT_MASTER, "this node is a slave")
        raise not_sure()


MASTER: Callable[[], Role] = lambda: Role(7, 7)  # noqa: E731
DEPOSED: Callable[[], Role] = lambda: Role(7, None)  # noqa: E731
SLAVE: Callable[[], Role] = lambda: Role(None, None)  # noqa: E731


def test_every_method_says_whose_word_its_answer_is() -> None:
    assert {f"{service}/" for service in SERVICES} == {
        name.rpartition("/")[0] + "/" for name in METHODS
    }
    assert METHODS.keys() <= SPEAKS.keys()
    assert SPEAKS.keys() == RULES.keys(), "each table has all that is served"


def test_a_method_without_a_row_is_not_served() -> None:
    with pytest.raises(NoRuleError, match="Broker/New has no row"):
        speaks("tandemlog.v1.Broker", "New")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_an_answer_of_the_master_has_room_for_its_epoch(name: str) -> None:
    kind, method = SPEAKS[name], METHODS[name]
    if kind is NODE:
        return
    fields = method.output_type.fields_by_name
    assert "master_epoch" in fields
    assert "error" in fields
    assert not method.server_streaming, "its answers would go out before anybody could vouch"
    assert kind is not POSITIONS or "positions" in method.input_type.fields_by_name
    assert kind is not EITHER or "of_master" in method.input_type.fields_by_name


def test_every_error_is_of_one_kind() -> None:
    kinds = (FOR_EVER, OF_THE_REQUEST, PASSING)
    for code in common_pb2.ErrorCode.values():
        if code:
            name = common_pb2.ErrorCode.Name(code)
            assert sum(code in kind for kind in kinds) == 1, (
                f"{name}: what may a caller make of it?"
            )


@pytest.mark.parametrize("kind", [READ, CHANGE, GROUPS, EITHER])
async def test_a_master_answers_with_its_epoch(kind: Speaks) -> None:
    leadership, answer = leadership_of(MASTER()), admin_pb2.ListTopicsResponse()
    begun = await leadership.begin(kind, OF_MASTER)
    await leadership.vouch(kind, OF_MASTER, answer, begun)
    assert answer.master_epoch == 7


@pytest.mark.parametrize("kind", [READ, GROUPS, EITHER])
async def test_a_deposed_master_gives_no_answer(kind: Speaks) -> None:
    role = MASTER()
    leadership = leadership_of(role)
    begun = await leadership.begin(kind, OF_MASTER)
    role.led = None  # while the method ran
    with pytest.raises(RequestRefusedError) as refused:
        await leadership.vouch(kind, OF_MASTER, admin_pb2.ListTopicsResponse(), begun)
    assert refused.value.code == common_pb2.NOT_IN_SYNC


@pytest.mark.parametrize("kind", [CHANGE, GROUPS])
async def test_a_deposed_master_changes_nothing(kind: Speaks) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        await leadership_of(DEPOSED()).begin(kind, LIST)
    assert refused.value.code == common_pb2.NOT_IN_SYNC


async def test_another_term_in_between_spoils_what_was_read() -> None:
    role = MASTER()
    leadership = leadership_of(role)
    begun = await leadership.begin(READ, LIST)
    role.claims = role.led = 9
    with pytest.raises(RequestRefusedError, match="not sure"):
        await leadership.vouch(READ, LIST, admin_pb2.ListTopicsResponse(), begun)
    gap = common_pb2.Error(code=common_pb2.UNKNOWN_GROUP)
    assert (await leadership.refuse(gap, begun)).code == common_pb2.NOT_IN_SYNC


@pytest.mark.parametrize("kind", [READ, CHANGE, GROUPS, EITHER])
async def test_a_slave_does_not_speak_for_the_master(kind: Speaks) -> None:
    with pytest.raises(RequestRefusedError, match="is a slave"):
        await leadership_of(SLAVE()).begin(kind, OF_MASTER)


async def test_a_slave_says_what_it_has_itself() -> None:
    leadership, answer = leadership_of(SLAVE()), admin_pb2.ListTopicsResponse()
    begun = await leadership.begin(EITHER, LIST)
    await leadership.vouch(EITHER, LIST, answer, begun)
    error = common_pb2.Error(code=common_pb2.UNKNOWN_TOPIC, message="m")
    error = await leadership.refuse(error, begun)
    assert (error.code, error.master_epoch, answer.master_epoch) == (common_pb2.UNKNOWN_TOPIC, 0, 0)


@pytest.mark.parametrize("code", sorted(FOR_EVER))
async def test_what_is_acted_on_for_ever_needs_a_leader_whatever_the_method(
    code: common_pb2.ErrorCode.ValueType,
) -> None:
    asked = common_pb2.Error(code=code)
    refused = await leadership_of(DEPOSED()).refuse(asked, 7)
    assert refused.code == common_pb2.NOT_IN_SYNC
    said = await leadership_of(MASTER()).refuse(common_pb2.Error(code=code), 7)
    assert (said.code, said.master_epoch) == (code, 7)


@pytest.mark.parametrize("code", sorted(PASSING | OF_THE_REQUEST))
async def test_other_refusals_wait_for_nobody(code: common_pb2.ErrorCode.ValueType) -> None:
    role = DEPOSED()
    error = common_pb2.Error(code=code)
    assert (await leadership_of(role).refuse(error, 7)).code == code
    assert role.asked == 0


async def test_reads_of_a_node_wait_for_nobody() -> None:
    role = DEPOSED()
    leadership, answer = leadership_of(role), admin_pb2.ListTopicsResponse()
    for kind in (NODE, EITHER):
        await leadership.vouch(kind, LIST, answer, await leadership.begin(kind, LIST))
    assert (role.asked, answer.master_epoch) == (0, 0)


async def test_a_refusal_inside_an_answer_has_the_epoch_too() -> None:
    answer = broker_pb2.CommitOffsetsResponse(error=common_pb2.Error(code=common_pb2.FENCED_MEMBER))
    leadership, request = leadership_of(MASTER()), broker_pb2.CommitOffsetsRequest()
    await leadership.vouch(GROUPS, request, answer, await leadership.begin(GROUPS, request))
    assert (answer.master_epoch, answer.error.master_epoch) == (7, 7)
