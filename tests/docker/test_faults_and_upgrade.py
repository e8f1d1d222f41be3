"""What containers suffer, in order, on one composed cluster: frozen, cut off, restarted, upgraded.

Through all of it messages are put from inside the network, and counted as acknowledged; at the end
each node serves each of them once, and the nodes' files are compared with each other.
"""

import json
import ssl
import subprocess

import pytest

from helpers.composed import NODES, SETTLE_S, Composed, docker
from helpers.running import wait_until

pytestmark = pytest.mark.docker

TOPIC = "faults"
AT_A_TIME = 100


class Account:
    """How many messages were acknowledged."""

    def __init__(self, composed: Composed) -> None:
        self._composed = composed
        self.acknowledged = 0

    def put(self) -> None:
        """More messages; the client itself finds a new master and tries again."""
        words = ("--generate", str(AT_A_TIME), "--size", "64", "--timeout", "60")
        [row] = self._composed.rows("put", TOPIC, *words)
        assert (row["failed"], row["messages"]) == (0, AT_A_TIME)
        self.acknowledged += row["messages"]

    def check(self) -> None:
        """Every one is served once, whichever role it is read from."""
        for role in ("master", "slave"):
            words = ("--offset", "earliest", "--max", "1000000", "--from", role)

            def served(words: tuple[str, ...] = words) -> bool:
                ids = [row["msg_id"] for row in self._composed.rows("pull", TOPIC, *words)]
                assert len(set(ids)) == len(ids)
                return len(ids) == self.acknowledged

            wait_until(f"a {role} to serve every message once", served, 60)


@pytest.fixture(scope="module")
def account(composed: Composed) -> Account:
    composed.wait_in_sync()
    composed.tandemlog("topic", "create", TOPIC)
    account = Account(composed)
    account.put()
    return account


def test_a_frozen_master_is_replaced_and_follows_when_it_thaws(
    composed: Composed, account: Account
) -> None:
    master = composed.master()
    docker("pause", composed.container(master))
    assert composed.master(other_than=master) != master
    account.put()
    docker("unpause", composed.container(master))
    composed.wait_in_sync()
    account.put()


def test_a_master_that_is_cut_off_is_replaced_and_follows_when_it_is_back(
    composed: Composed, account: Account
) -> None:
    master = composed.master()
    network, container = f"{composed.project}_default", composed.container(master)
    docker("network", "disconnect", network, container)
    assert composed.master(other_than=master) != master
    account.put()
    docker("network", "connect", "--alias", master, network, container)
    composed.wait_in_sync()
    account.put()


def test_all_are_killed_and_started_again(composed: Composed, account: Account) -> None:
    everything = [composed.container(name) for name in (*NODES, "etcd0", "etcd1", "etcd2")]
    docker("kill", *everything)
    docker("start", *everything)
    composed.wait_in_sync()
    account.put()


def test_certificates_are_renewed_under_way(composed: Composed, account: Account) -> None:
    def served() -> dict[str, str]:
        return {name: ssl.get_server_certificate((composed.address(name), 7180)) for name in NODES}

    before = served()
    composed.compose("run", "--rm", "-T", "secure", "renew")
    account.put()
    wait_until(
        "every node to use its new certificate",
        lambda: not set(before.values()) & set(served().values()),
        SETTLE_S,
    )
    account.put()
    composed.wait_in_sync()


def test_nodes_are_upgraded_one_by_one(composed: Composed, account: Account) -> None:
    upgraded = f"{composed.image}:next"
    subprocess.run(
        ["docker", "build", "-q", "-t", upgraded, "-"],
        input=f"FROM {composed.image}\nLABEL release=next\n".encode(),
        check=True,
        capture_output=True,
    )
    composed.image = upgraded
    old_master = composed.master()
    slaves = [name for name in NODES if name != old_master]
    for name in slaves:
        composed.compose("up", "-d", "--no-deps", "--no-build", name)
        composed.wait_in_sync()
        account.put()
    composed.tandemlog("switchover", "--to", slaves[0], "--yes")
    account.put()
    composed.compose("up", "-d", "--no-deps", "--no-build", old_master)
    composed.wait_in_sync()
    account.put()
    wanted = docker("image", "inspect", "--format", "{{.Id}}", upgraded)
    for name in NODES:
        assert docker("inspect", "--format", "{{.Image}}", composed.container(name)) == wanted


def test_a_lost_volume_is_filled_again(composed: Composed, account: Account) -> None:
    lost = next(name for name in NODES if name != composed.master())
    composed.compose("rm", "-sf", lost)
    docker("volume", "rm", f"{composed.project}_{lost}")
    account.put()
    composed.compose("up", "-d", "--no-deps", "--no-build", lost)
    composed.wait_in_sync()
    account.put()
    account.check()


def test_the_files_of_all_nodes_hold_and_are_equal(composed: Composed, account: Account) -> None:
    composed.wait_in_sync()
    for name in NODES:
        docker("stop", composed.container(name))
    mounts = [f"-v={composed.project}_{name}:/{name}:ro" for name in NODES]
    for name, other in (("n0", "n1"), ("n2", "n0")):
        said = docker(
            *("run", "--rm", "--network=none", "--tmpfs=/tmp", *mounts, composed.image),
            *("verify", f"/{name}/store", "--against", f"/{other}/store", "--format", "jsonl"),
        )
        assert account.acknowledged <= json.loads(said.splitlines()[0])["records"], said
