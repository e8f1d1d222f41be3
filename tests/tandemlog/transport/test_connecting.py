"""A client against nodes with TLS: what is let in, and what the error says about the rest."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from fakes.fake_cluster import FakeCluster
from helpers.made_certificates import Authority
from tandemlog import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConnectionOptions,
    Message,
    ProducerOptions,
    Security,
)
from tandemlog.errors import (
    AuthenticationError,
    NodeUnavailableError,
    SecurityError,
    TandemlogError,
)
from tandemlog_server.node.certs.owners import OwnerKind

QUICK = ConnectionOptions(retry_timeout_ms=1_500)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


async def ask(cluster: FakeCluster, security: Security | None) -> None:
    async with AsyncAdmin(cluster.endpoints, connection=QUICK, security=security) as admin:
        await admin.topics()


async def test_everything_works_over_tls_with_certificates(authority: Authority) -> None:
    security = authority.client()
    async with FakeCluster(1, credentials=authority.node("n0")) as cluster:
        await ask(cluster, security)
        async with AsyncAdmin(cluster.endpoints, security=security) as admin:
            await admin.create_topic("t", 2)
        async with AsyncProducer(cluster.endpoints, security=security) as producer:
            sent = await (await producer.send(Message("t", b"1")))
            assert (await producer.send_many("t", [b"2", b"3"])).count == 2
        async with AsyncConsumer(cluster.endpoints, security=security) as consumer:
            stream = await consumer.follow("t", until_end=True)
            assert sorted([each.body async for each in stream]) == [b"1", b"2", b"3"]
        assert sent.queue_offset == 0


Case = tuple[
    Callable[[Authority, Path], tuple[grpc.ServerCredentials | None, Security | None]], str
]


def _other(folder: Path) -> Authority:
    return Authority(folder / "theirs")


CASES: dict[str, Case] = {
    "the node's has expired": (
        lambda ours, _: (ours.node("n0", days_ago=5), ours.client()),
        "the node's certificate has expired",
    ),
    "the node's is not valid yet": (
        lambda ours, _: (ours.node("n0", days_ago=-5), ours.client()),
        "the node's certificate is not valid yet",
    ),
    "the node's is of another authority": (
        lambda ours, folder: (_other(folder).node("n0"), ours.client()),
        "the node's certificate is signed by another authority than that of ca_file .*ours/ca.crt",
    ),
    "the node's names another host": (
        lambda ours, _: (ours.node("n0", ["db1.example"]), ours.client()),
        "the node's certificate names other hosts than 127.0.0.1",
    ),
    "the client has none": (
        lambda ours, _: (ours.node("n0"), Security(ca_file=ours.ca_file)),
        "the node requires a client certificate: give cert_file and key_file",
    ),
    "the client's has expired": (
        lambda ours, _: (ours.node("n0"), ours.client(days_ago=5)),
        "cert_file .*orders.crt, has expired",
    ),
    "the client's is of another authority": (
        lambda ours, folder: (
            ours.node("n0"),
            _other(folder).client(ca_file=ours.ca_file),
        ),
        "cert_file .*theirs/orders.crt, is signed by another authority than that of ca_file",
    ),
    "no TLS at the node": (
        lambda ours, _: (None, ours.client()),
        "there is no TLS at this address: leave ca_file and cert_file out",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_refusal_says_which_certificate_and_why(
    case: str, authority: Authority, tmp_path: Path
) -> None:
    make, words = CASES[case]
    credentials, security = make(authority, tmp_path)
    async with FakeCluster(credentials=credentials) as cluster:
        with pytest.raises(AuthenticationError, match=f"{cluster.endpoints[0]}: .*{words}"):
            await ask(cluster, security)


async def test_plain_text_to_a_node_with_tls(authority: Authority) -> None:
    async with FakeCluster(credentials=authority.node("n0")) as cluster:
        with pytest.raises(NodeUnavailableError, match="no gRPC without TLS there"):
            await ask(cluster, None)


async def test_another_name_in_the_certificates(authority: Authority) -> None:
    security = authority.client(server_name="db1.example")
    async with FakeCluster(credentials=authority.node("n0", ["db1.example"])) as cluster:
        await ask(cluster, security)


async def test_one_node_that_is_refused_leaves_the_others(
    authority: Authority, tmp_path: Path
) -> None:
    async with (
        FakeCluster(credentials=authority.node("n0")) as cluster,
        FakeCluster(credentials=_other(tmp_path).node("n1")) as stranger,
    ):
        endpoints = [*stranger.endpoints, *cluster.endpoints]
        async with AsyncAdmin(endpoints, security=authority.client()) as admin:
            await admin.topics()
            topology = await admin.cluster()
    assert "another authority" in topology.asked_text()


TOKENS = ("tl_first", "tl_second")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "unknown token .no token and no client certificate was given"),
        ({"token": "tl_wrong"}, "unknown token .a token was given"),
    ],
)
async def test_a_token_that_is_not_known(given: dict[str, str], words: str) -> None:
    async with FakeCluster(tokens={TOKENS[0]}) as cluster:
        with pytest.raises(AuthenticationError, match=words) as refused:
            await ask(cluster, Security(**given))  # type: ignore[arg-type]
    assert "tl_" not in str(refused.value)


async def test_a_token_is_read_again_under_load(tmp_path: Path) -> None:
    """The file is replaced while a producer sends, and then the nodes refuse the old one."""
    file = tmp_path / "token"
    file.write_text(TOKENS[0] + "\n")
    async with FakeCluster(tokens=set(TOKENS)) as cluster:
        cluster.log.create_topic("t", 1)
        security = Security(token_file=str(file))
        options = ProducerOptions(linger_ms=0)
        async with AsyncProducer(cluster.endpoints, options, security=security) as producer:
            await (await producer.send(Message("t", b"before")))
            file.write_text(TOKENS[1])
            assert cluster.tokens is not None
            cluster.tokens.remove(TOKENS[0])
            # the running stream was let in: a node that checks each request ends it
            await cluster.master.stop()
            sending = asyncio.gather(
                *[await producer.send(Message("t", str(each).encode())) for each in range(20)]
            )
            await cluster.master.start()
            assert len(await sending) == 20


async def test_nodes_may_learn_of_a_new_token_later_than_clients(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKENS[0])
    async with FakeCluster(tokens={TOKENS[0]}) as cluster:
        options = ConnectionOptions(security=Security(token_file=str(file)))
        async with AsyncAdmin(cluster.endpoints, connection=options) as admin:
            await admin.topics()
            file.write_text(TOKENS[1])
            assert admin._connection._files.current(look=True).metadata[0][1].endswith(TOKENS[1])
            asking = asyncio.create_task(admin.topics())
            await cluster.refused.wait()
            assert cluster.tokens is not None
            cluster.tokens.add(TOKENS[1])
            await asking


async def test_a_revoked_token_fails_puts_for_its_own_reason(tmp_path: Path) -> None:
    async with FakeCluster(tokens=set(TOKENS)) as cluster:
        cluster.log.create_topic("t", 1)
        options = ProducerOptions(linger_ms=0, delivery_timeout_ms=3_000)
        security = Security(token=TOKENS[0])
        async with AsyncProducer(cluster.endpoints, options, security=security) as producer:
            await (await producer.send(Message("t", b"before")))
            assert cluster.tokens is not None
            cluster.tokens.remove(TOKENS[0])
            await cluster.master.stop()
            await cluster.master.start()
            with pytest.raises(TandemlogError, match="unknown token"):
                await (await producer.send(Message("t", b"after")))


async def test_renewed_certificates_are_used_without_a_new_client(
    authority: Authority,
) -> None:
    """The authority itself is replaced: what was made before cannot connect any more."""
    async with FakeCluster(credentials=authority.node("n0")) as cluster:
        security = authority.client()
        async with AsyncAdmin(cluster.endpoints, security=security, connection=QUICK) as admin:
            await admin.topics()
            await cluster.master.stop()
            renewed = authority.replaced()
            renewed.client()
            cluster.credentials = renewed.node("n0")
            await cluster.master.start()
            async with asyncio.timeout(10):
                while True:
                    try:
                        await admin.topics()
                        break
                    except TandemlogError:
                        await asyncio.sleep(0.1)


async def test_a_token_does_not_leave_the_machine_in_clear_text() -> None:
    security = Security(token="tl_x")
    async with AsyncAdmin("db1.example:10911", security=security, connection=QUICK) as admin:
        with pytest.raises(SecurityError, match=r"db1\.example:10911: a token must not travel"):
            await admin.topics()


async def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    other = _other(tmp_path).make(OwnerKind.CLIENT, "theirs")
    ours = authority.make(OwnerKind.CLIENT, "ours")
    empty = tmp_path / "empty"
    empty.write_text("")
    for security, words in (
        (Security(ca_file=str(tmp_path / "none")), "cannot read .*none: No such file"),
        (Security(ca_file=str(empty)), "ca_file .*empty: no certificates in PEM"),
        (
            Security(cert_file=str(ours), key_file=str(other.with_suffix(".key"))),
            "key_file .*theirs.key does not fit the certificate in .*ours.crt",
        ),
        (Security(token_file=str(empty)), "token_file .*empty: it is empty"),
    ):
        async with AsyncAdmin("127.0.0.1:1", security=security, connection=QUICK) as admin:
            with pytest.raises(SecurityError, match=words):
                await admin.topics()
