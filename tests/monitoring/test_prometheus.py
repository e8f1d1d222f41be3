"""A real Prometheus scrapes a real cluster: every query of the dashboard has an answer, every alert
rule can be evaluated, and none is raised while the cluster is well."""

import asyncio
import contextlib
import json
import math
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers import needs
from helpers.elected import Elected
from helpers.made_certificates import Authority
from helpers.monitoring_queries import ALERTS, panels, rules
from helpers.running import SMALL, free_ports, wait_until
from tandemlog.errors import UnknownTopicError
from tandemlog_server.node.access.new_tokens import hash_of, new_token
from tandemlog_server.node.certs.owners import OwnerKind
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.wire.remoting import Command, CommandReader, encode_command

pytestmark = [pytest.mark.cluster, pytest.mark.lane("brokers")]

# only with TLS
NOT_HERE = ("tandemlog_certificate_expiry_seconds",)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        needs.cannot_run(f"{name} is not on PATH: it is in Debian's package prometheus")
    return found


class Prometheus:
    """A server of our configuration, with other targets and shorter intervals; `replaced` are
    other places of files."""

    def __init__(
        self,
        folder: Path,
        targets: list[str],
        *,
        config: str = "prometheus.yml",
        replaced: Mapping[str, Path] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        folder.mkdir()
        shutil.copy(ALERTS, folder)
        text = (ALERTS.parent / config).read_text()
        for place, here in (replaced or {}).items():
            assert text.count(place) == 1
            text = text.replace(place, str(here))
        wanted = '["n0:7180", "n1:7180", "n2:7180"]'
        assert text.count(wanted) == 1
        text = text.replace(wanted, json.dumps(targets)).replace("_interval: 5s", "_interval: 1s")
        (folder / "prometheus.yml").write_text(text)
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def get(self, path: str, **query: str) -> Any:
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def values(self, query: str) -> list[float]:
        return [
            float(each["value"][1]) for each in self.get("/api/v1/query", query=query)["result"]
        ]

    def answers(self, query: str) -> bool:
        """Whether the server is up and `query` has a series."""
        try:
            return bool(self.values(query))
        except (OSError, AssertionError):
            return False

    def samples(self) -> float:
        """How often the node that was scraped least was scraped."""
        try:
            found = self.values("count_over_time(tandemlog_uptime_seconds[1m])")
        except (OSError, AssertionError):
            return 0
        return min(found) if len(found) == 2 else 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


@contextlib.contextmanager
def scraped(folder: Path, cluster: Elected) -> Iterator[Prometheus]:
    targets = [node.http.removeprefix("http://") for node in cluster.nodes]
    server = Prometheus(folder / "prometheus", targets)
    try:
        yield server
    finally:
        server.close()


def work(cluster: Elected) -> None:
    """Puts, a retry of nothing, pulls, a commit with a lag, and a call that is refused."""
    with (
        tandemlog.Producer(cluster.endpoints) as producer,
        tandemlog.Consumer(cluster.endpoints, group="g") as consumer,
    ):
        producer.send_many("t", [b"x" * 100] * 500)
        batch = consumer.pull("t", 0, 0, wait_ms=5_000)
        consumer.commit({("t", 0): batch.next_offset - 1})
        with pytest.raises(UnknownTopicError):
            consumer.pull("nothing", 0, 0)


def routes(door: str) -> None:
    """One request of RocketMQ's clients that is answered, and one that is refused."""
    host, _, port = door.rpartition(":")
    wire = CommandReader()
    answers: list[Command] = []
    with socket.create_connection((host, int(port)), 20) as connection:
        for opaque, topic in enumerate(("t", "nothing")):
            request = Command(RequestCode.GET_ROUTE_INFO_BY_TOPIC, opaque, fields={"topic": topic})
            connection.sendall(encode_command(request))
        while len(answers) < 2:
            data = connection.recv(1 << 16)
            assert data, f"{door} has ended the connection"
            answers += wire.feed(data)
    codes = {answer.opaque: answer.code for answer in answers}
    assert codes == {0: ResponseCode.SUCCESS, 1: ResponseCode.TOPIC_NOT_EXIST}


def test_every_query_has_an_answer(tmp_path: Path) -> None:
    program("prometheus")
    cluster = Elected(tmp_path, nodes=2)
    doors = [f"127.0.0.1:{port}" for port in free_ports(2)]
    for node, door in zip(cluster.nodes, doors, strict=True):
        node.settings["rocketmq_clients"] = {"listen": door}
        node.settings["archive"] = {"url": str(tmp_path / "archive"), "interval_ms": 200}
    with cluster:
        cluster.the_master()
        cluster.wait_in_sync(count=2)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        work(cluster)
        for door in doors:
            routes(door)
        with scraped(tmp_path, cluster) as server:
            wait_until("two scrapes", lambda: server.samples() >= 2, 60)
            work(cluster)
            for door in doors:
                routes(door)
            seen = server.samples()
            wait_until("two more", lambda: server.samples() >= seen + 2, 60)
            for title, query in panels():
                if not any(name in query for name in NOT_HERE):
                    found = server.values(query)
                    assert found, f"{title}: no series for {query}"
                    assert not all(map(math.isnan, found)), f"{title}: only NaN for {query}"
            assert server.values('sum(tandemlog_messages_in_total{topic="t"})') == [1000]
            (lag,) = server.values("tandemlog_consumer_lag_messages")
            assert lag >= 1
            for rule in rules():
                server.get("/api/v1/query", query=rule["expr"])
            loaded = [
                rule for group in server.get("/api/v1/rules")["groups"] for rule in group["rules"]
            ]
            assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in rules()}
            for rule in loaded:
                assert rule["health"] in ("ok", "unknown"), rule
                # the disk is that of this machine
                if "Disk" not in rule["name"]:
                    assert rule["state"] != "firing", rule


async def test_a_token_without_rights_is_enough_for_a_scrape_over_tls(tmp_path: Path) -> None:
    program("prometheus")
    (port,) = free_ports(1)
    authority = Authority(tmp_path / "certs")
    certificate = authority.make(OwnerKind.NODE, "n0", ("127.0.0.1",))
    token, token_file = new_token(), tmp_path / "metrics.token"
    token_file.write_text(token)
    access = tmp_path / "access.toml"
    access.write_text(f'[[identity]]\nname = "metrics"\ntokens = ["{hash_of(token)}"]\n')
    settings = {
        "cluster_id": authority.cluster,
        "listen": "127.0.0.1:0",
        "http_listen": f"127.0.0.1:{port}",
        "store": {"directory": tmp_path / "n0", **SMALL},
        "security": {"access_file": str(access)},
        "tls": {
            "ca_file": authority.ca_file,
            "cert_file": str(certificate),
            "key_file": str(certificate.with_suffix(".key")),
        },
    }
    node = Node(NodeConfig(**settings))  # type: ignore[arg-type]
    await node.start()
    server = await asyncio.to_thread(
        Prometheus,
        tmp_path / "prometheus",
        [f"127.0.0.1:{port}"],
        config="prometheus-secure.yml",
        replaced={
            "/certs/ca.crt": Path(authority.ca_file),
            "/certs/metrics.token": token_file,
        },
    )
    try:
        left = "tandemlog_certificate_expiry_seconds - time()"
        await asyncio.to_thread(wait_until, "a scrape", lambda: server.answers(left), 60)
        (seconds,) = await asyncio.to_thread(server.values, left)
        assert 86_000 < seconds <= 86_400
        assert await asyncio.to_thread(server.values, "up") == [1]
        alert = 'ALERTS{alertname="TandemlogCertificateExpires"}'
        await asyncio.to_thread(wait_until, "the alert", lambda: server.answers(alert), 60)
    finally:
        await asyncio.to_thread(server.close)
        await node.stop()


def test_the_rules_raise_what_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(Path(__file__).parent / "alerts_test.yml", tmp_path)
    done = subprocess.run(
        [program("promtool"), "test", "rules", "alerts_test.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
