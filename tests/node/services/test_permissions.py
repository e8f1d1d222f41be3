"""Every method of every service: refused without a proof, and without the right that it needs.

The methods come from the descriptors, so a new one fails here until it has a row in the table and
a request below that it must refuse.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from fakes.secured_node import access_text, bearer, channel, running, settings, until
from tandemlog.v1 import (
    admin_pb2,
    broker_pb2,
    common_pb2,
    replication_pb2,
    transaction_pb2,
    work_pb2,
)
from tandemlog_server.ha.protocol.frames import (
    Hello,
    Refusal,
    decode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.node.services.grpc_server import SERVICES
from tandemlog_server.node.services.permissions import ANY, PROBE, RULES, NoRuleError, rule_of

FILES = (
    broker_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    work_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
    transaction_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)
METHODS = {
    f"{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
QUEUE = broker_pb2.QueuePosition(topic="secret", queue_id=0)

# What an identity with rights on other names alone must not get; and the right that it lacks.
FORBIDDEN: dict[str, tuple[Any, str]] = {
    "Append": (broker_pb2.AppendRequest(topics=["other", "secret"]), "write"),
    "Pull": (broker_pb2.PullRequest(positions=[QUEUE]), "read"),
    "QueueRanges": (broker_pb2.QueueRangesRequest(topics=["other", "secret"]), "read"),
    "SearchOffset": (broker_pb2.SearchOffsetRequest(queues=[QUEUE]), "read"),
    "QueryByKey": (broker_pb2.QueryByKeyRequest(topic="secret", key="k"), "read"),
    "GetByOffset": (broker_pb2.GetByOffsetRequest(physical_offsets=[0]), "read"),
    "CommitOffsets": (broker_pb2.CommitOffsetsRequest(group="secret"), "consume"),
    "FetchOffsets": (broker_pb2.FetchOffsetsRequest(group="secret"), "consume"),
    "CheckPositions": (broker_pb2.CheckPositionsRequest(positions=[QUEUE]), "read"),
    "GroupHeartbeat": (
        broker_pb2.GroupHeartbeatRequest(group="secret", member_id="m", topics=["other"]),
        "consume",
    ),
    "DescribeGroup": (broker_pb2.DescribeGroupRequest(group="secret"), "consume"),
    "DescribeProducer": (broker_pb2.DescribeProducerRequest(producer_id="p"), "write"),
    "Recall": (broker_pb2.RecallRequest(topic="secret", recall_handle="h"), "write"),
    "FetchSegmentRange": (broker_pb2.FetchSegmentRangeRequest(), "read"),
    "FetchLogState": (broker_pb2.FetchLogStateRequest(), "admin"),
    "Receive": (work_pb2.ReceiveRequest(group="secret", topics=["other"]), "consume"),
    "Acknowledge": (work_pb2.AcknowledgeRequest(group="secret"), "consume"),
    "Nack": (work_pb2.NackRequest(group="secret"), "consume"),
    "Release": (work_pb2.ReleaseRequest(group="secret"), "consume"),
    "Extend": (work_pb2.ExtendRequest(group="secret"), "consume"),
    "Reject": (work_pb2.RejectRequest(group="secret"), "consume"),
    "SetGroupPolicy": (work_pb2.SetGroupPolicyRequest(group="secret"), "consume"),
    "DescribeGroupWork": (work_pb2.DescribeGroupWorkRequest(group="secret"), "consume"),
    "ListDeadLetters": (work_pb2.ListDeadLettersRequest(group="secret"), "consume"),
    "ReadDeadLetter": (work_pb2.ReadDeadLetterRequest(group="secret"), "consume"),
    "ResendDeadLetters": (work_pb2.ResendDeadLettersRequest(group="secret"), "consume"),
    "PurgeDeadLetters": (work_pb2.PurgeDeadLettersRequest(group="secret"), "consume"),
    "CreateTopic": (admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name="other")), "admin"),
    "DeleteTopic": (admin_pb2.DeleteTopicRequest(name="other"), "admin"),
    "DeleteGroup": (admin_pb2.DeleteGroupRequest(group="other"), "admin"),
    "ChangeCluster": (admin_pb2.ChangeClusterRequest(action=admin_pb2.PAUSE), "admin"),
    "TakeOver": (admin_pb2.TakeOverRequest(), "admin"),
    "DescribeSettings": (admin_pb2.DescribeSettingsRequest(), "admin"),
    "ChangeSetting": (admin_pb2.ChangeSettingRequest(key="log.level", value="debug"), "admin"),
    "ListConnections": (admin_pb2.ListConnectionsRequest(), "admin"),
    "DescribeScrub": (admin_pb2.DescribeScrubRequest(), "admin"),
    "BeginScrub": (admin_pb2.BeginScrubRequest(), "admin"),
    "ListDelayed": (admin_pb2.ListDelayedRequest(topic="secret"), "read"),
    "ListTopics": (admin_pb2.ListTopicsRequest(names=["other", "secret"]), "read"),
}
FORBIDDEN |= {
    "EndTransaction": (
        transaction_pb2.EndTransactionRequest(
            transaction_id="t",
            outcome=transaction_pb2.COMMITTED,
            offsets=[broker_pb2.CommitOffsetsRequest(group="secret")],
        ),
        "consume",
    ),
    "PollTransactionChecks": (
        transaction_pb2.PollTransactionChecksRequest(producer_group="g"),
        "write",
    ),
    "DecideTransaction": (transaction_pb2.DecideTransactionRequest(transaction_id="t"), "admin"),
}
NEEDS_ANY_WRITE = {"DescribeProducer", "PollTransactionChecks"}
REFUSED_BY_A_FRAME = {"Replicate"}
OF_NODES: dict[str, Any] = {
    "BlockChecksum": replication_pb2.BlockChecksumRequest,
    "FetchBlock": replication_pb2.FetchBlockRequest,
}
SHOWN_IN_PART = {"ListGroups", "ListTransactions"}


def call_of(on: aio.Channel, path: str, request: Any, metadata: Any = ()) -> Any:
    """The first answer to `request`, read."""
    method = METHODS[path]
    answer = message_factory.GetMessageClass(method.output_type)
    kind = "stream" if method.client_streaming else "unary"
    kind += "_stream" if method.server_streaming else "_unary"
    made = getattr(on, kind)(
        f"/{path}",
        request_serializer=lambda each: each.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    given = iter([request]) if method.client_streaming else request
    return made(given, metadata=metadata, timeout=10)


async def first_answer(on: aio.Channel, path: str, request: Any, metadata: Any = ()) -> Any:
    call = call_of(on, path, request, metadata)
    return await call.read() if METHODS[path].server_streaming else await call


def empty_request(path: str) -> Any:
    return message_factory.GetMessageClass(METHODS[path].input_type)()


def test_the_table_has_each_method_and_no_other() -> None:
    assert set(RULES) == set(METHODS)
    assert {path.split("/")[0] for path in METHODS} >= set(SERVICES)
    with pytest.raises(NoRuleError, match=r"Broker/Steal has no row"):
        rule_of("tandemlog.v1.Broker", "Steal")


def test_each_method_that_is_not_for_everyone_has_a_request_that_it_must_refuse() -> None:
    restricted = {path.split("/")[1] for path, rule in RULES.items() if rule not in (ANY, PROBE)}
    assert restricted == {*FORBIDDEN, *REFUSED_BY_A_FRAME, *OF_NODES, *SHOWN_IN_PART}


async def test_no_method_serves_a_caller_without_a_proof(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(tmp_path, access=access_text(a={"admin": True}))
    wrong = (
        (),
        (("authorization", "Bearer tl_of_another"),),
        (("authorization", "Basic YTph"),),
        (("authorization", "Bearer"),),
        (*bearer("a"), ("authorization", "Bearer tl_of_another")),
        (("authorization", "Bearer tl_of_another"), *bearer("a")),
    )
    async with running(config) as node, channel(node) as on:

        async def refused(path: str, request: Any, metadata: Any) -> None:
            with pytest.raises(aio.AioRpcError) as error:
                await first_answer(on, path, request, metadata)
            assert error.value.code() is StatusCode.UNAUTHENTICATED, path
            assert "tl_of" not in str(error.value.details())

        # nothing that a stranger sends is looked at: it need not even be a message
        cases = [
            (path, request, metadata)
            for path in METHODS
            for request in (empty_request(path), _Garbage())
            for metadata in wrong
        ]
        await asyncio.gather(*(refused(*each) for each in cases))
        await until(lambda: node._door.calls == 0)
        assert not node.security.doorkeeper._connections
    lines = [each.getMessage() for each in caplog.records if each.name == "tandemlog.audit"]
    assert 0 < len(lines) <= 30  # of some 200
    assert not any("tl_of" in each.getMessage() for each in caplog.records)


class _Garbage:
    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf's
        return b"\xff\xff"


async def test_no_method_serves_a_caller_that_lacks_its_right(tmp_path: Path) -> None:
    rights = {"read": ["other"], "write": ["other"], "consume": ["other"]}
    access = access_text(nothing={}, other=rights, op={"admin": True})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        stub = "tandemlog.v1.Admin/CreateTopic"
        for topic in ("secret", "other"):
            made = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
            answer = await first_answer(on, stub, made, bearer("op"))
            assert not answer.error.code
        for path, name in _restricted():
            request, right = FORBIDDEN[name]
            for who in ("nothing", "other"):
                if who == "other" and name in NEEDS_ANY_WRITE:
                    continue  # it may write something
                answer = await first_answer(on, path, request, bearer(who))
                assert answer.error.code == common_pb2.PERMISSION_DENIED, (path, who)
                assert answer.error.field == right, path
                assert f"identity '{who}' lacks the right '{right}'" in answer.error.message
            answer = await first_answer(on, path, request, bearer("op"))
            assert answer.error.code != common_pb2.PERMISSION_DENIED, path


async def test_blocks_of_the_log_go_to_the_node_that_the_proof_names_alone(tmp_path: Path) -> None:
    access = access_text(op={"admin": True}, n1={"node": "n1"}, n2={"node": "n2"})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        cluster_id = node.config.cluster_id
        for name, kind in OF_NODES.items():
            path = f"tandemlog.v1.Replication/{name}"
            request = kind(cluster_id=cluster_id, node_id="n1", end=1)
            for who in ("op", "n2"):
                answer = await first_answer(on, path, request, bearer(who))
                assert answer.error.code == common_pb2.PERMISSION_DENIED, (path, who)
                assert answer.error.field == "node"
            answer = await first_answer(on, path, request, bearer("n1"))
            assert answer.error.code != common_pb2.PERMISSION_DENIED, path
            other = kind(cluster_id="another", node_id="n1", end=1)
            answer = await first_answer(on, path, other, bearer("n1"))
            assert answer.error.field == "cluster_id"


def _restricted() -> Iterator[tuple[str, str]]:
    for path in METHODS:
        name = path.split("/")[1]
        if name in FORBIDDEN:
            yield path, name


async def test_what_everyone_may_ask_tells_nothing_of_what_it_may_not_see(tmp_path: Path) -> None:
    rights = {"read": ["mine"], "write": ["ours"], "consume": ["mine"]}
    access = access_text(nothing={}, some=rights, op={"admin": True})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        for topic in ("mine", "ours", "secret"):
            request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
            await first_answer(on, "tandemlog.v1.Admin/CreateTopic", request, bearer("op"))
            node.store.groups.ensure(topic, 1)
        shown: dict[str, Any] = {}
        for who in ("nothing", "some", "op"):
            topics = await first_answer(
                on, "tandemlog.v1.Admin/ListTopics", admin_pb2.ListTopicsRequest(), bearer(who)
            )
            groups = await first_answer(
                on, "tandemlog.v1.Admin/ListGroups", admin_pb2.ListGroupsRequest(), bearer(who)
            )
            shown[who] = [each.name for each in topics.topics], list(groups.groups)
        assert shown["nothing"] == ([], [])
        assert shown["some"] == (["mine", "ours"], ["mine"])
        assert shown["op"][0] == ["mine", "ours", "secret"]
        # the same words, whether there is such a topic or not
        texts = set()
        for topic in ("secret", "absent"):
            pull = broker_pb2.PullRequest(positions=[broker_pb2.QueuePosition(topic=topic)])
            answer = await first_answer(on, "tandemlog.v1.Broker/Pull", pull, bearer("some"))
            texts.add(answer.error.message.replace(topic, "X"))
        assert len(texts) == 1
        for path, rule in RULES.items():
            if rule in (ANY, PROBE):
                answer = await first_answer(on, path, empty_request(path), bearer("nothing"))
                assert "secret" not in str(answer), path


async def test_a_group_shows_what_its_caller_may_see(tmp_path: Path) -> None:
    """Two topics, each with a member; who may read one of them does not hear of the other."""
    access = access_text(
        op={"admin": True},
        some={"read": ["mine"], "consume": ["g*", "hidden"]},
        writer={"write": ["mine"], "consume": ["g"]},
    )
    broker, admin = "tandemlog.v1.Broker", "tandemlog.v1.Admin"
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:

        async def ask(who: str, path: str, request: Any) -> Any:
            return await first_answer(on, path, request, bearer(who))

        for topic in ("mine", "secret"):
            created = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
            await ask("op", f"{admin}/CreateTopic", created)
            await ask(
                "op",
                f"{broker}/GroupHeartbeat",
                broker_pb2.GroupHeartbeatRequest(
                    group="g", member_id=f"member-{topic}", number=1, topics=[topic],
                    session_timeout_ms=20_000, rebalance_timeout_ms=20_000,
                ),
            )  # fmt: skip
            for group in ("g-by-hand", "hidden"):
                if (group, topic) != ("hidden", "mine"):
                    position = broker_pb2.QueuePosition(topic=topic, queue_offset=0)
                    commit = broker_pb2.CommitOffsetsRequest(group=group, offsets=[position])
                    assert not (await ask("op", f"{broker}/CommitOffsets", commit)).error.code

        describe = broker_pb2.DescribeGroupRequest(group="g")
        fetch = broker_pb2.FetchOffsetsRequest(group="g-by-hand")
        both = {"member-mine", "member-secret"}
        for who, members, topics, groups in (
            ("op", both, ["mine", "secret"], {"g", "g-by-hand", "hidden"}),
            ("some", {"member-mine"}, ["mine"], {"g", "g-by-hand"}),
        ):
            found = await ask(who, f"{broker}/DescribeGroup", describe)
            assert {each.member_id for each in found.members} == members
            offsets = await ask(who, f"{broker}/FetchOffsets", fetch)
            assert sorted(each.topic for each in offsets.offsets) == topics
            listed = await ask(who, f"{admin}/ListGroups", admin_pb2.ListGroupsRequest())
            assert set(listed.groups) == groups
        found = await ask("writer", f"{broker}/DescribeGroup", describe)
        assert [each.member_id for each in found.members] == ["member-mine"]
        fetch.topics.append("secret")
        refused = await ask("some", f"{broker}/FetchOffsets", fetch)
        assert refused.error.code == common_pb2.PERMISSION_DENIED


async def test_replication_is_for_nodes_and_only_as_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = access_text(op={"admin": True}, n1={"node": "n1"})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:

        async def said(who: str, hello: bytes) -> str:
            stream: Any = on.stream_stream("/tandemlog.v1.Replication/Replicate")
            call = stream(metadata=bearer(who))
            await call.write(hello)
            frame = decode_master_frame(await call.read())
            return frame.reason if isinstance(frame, Refusal) else type(frame).__name__

        hello = encode_slave_frame(Hello("test", "n1", "1", "n1:1"))
        assert "'op' is an identity without one" in await said("op", hello)
        other = encode_slave_frame(Hello("test", "n2", "1", "n2:1"))
        assert "of node 'n2', but its proof names another node: 'n1'" in await said("n1", other)
        assert {each.node_id for each in node.members()} == {"n0"}
        assert await said("n1", hello) == "Answer"
        refusals = [each.getMessage() for each in caplog.records if each.name == "tandemlog.audit"]
        assert len(refusals) == 2
        assert "call=Replicate who=n1" in refusals[1]


async def test_open_health_lets_probes_in_and_nothing_else(tmp_path: Path) -> None:
    config = settings(tmp_path, access=access_text(a={}), security={"open_health": True})
    async with running(config) as node, channel(node) as on:
        for path, rule in RULES.items():
            if rule is PROBE:
                answer = await first_answer(on, path, empty_request(path))
                assert "SERVING" in str(answer)
            else:
                with pytest.raises(aio.AioRpcError) as refused:
                    await first_answer(on, path, empty_request(path))
                assert refused.value.code() is StatusCode.UNAUTHENTICATED


async def test_without_security_no_one_is_asked(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, channel(node) as on:
        request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name="t"))
        answer = await first_answer(on, "tandemlog.v1.Admin/CreateTopic", request)
        assert not answer.error.code
        steal: Any = on.unary_unary("/tandemlog.v1.Broker/Steal")
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            await steal(b"")


def test_the_page_says_what_each_method_needs() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/security.md").read_text()
    for path, rule in RULES.items():
        service, method = path.rsplit(".", 1)[1].split("/")
        needs = rule.needs.replace("*", "`*`")
        assert f"| `{service}/{method}` | {needs} |" in page
